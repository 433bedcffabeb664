# frozen_string_literal: true

require_relative "../../test_helper"
require "memscope/remote/workers/channel"

class WorkersChannelTest < MemscopeTest
  def worker(**fields)
    Memscope::Worker.capture({ index: 0, pid: Process.pid, role: :worker, samples: 1, reasons: {}, **fields })
  end

  # What the master takes from the channel.
  def received(channel) = Memscope::Worker.from_h(JSON.parse(channel.receive))

  def test_a_report_that_is_too_large_has_no_arenas
    channel = Memscope::Workers::Channel.new
    most = worker(arenas: { allocated_bytes: (0...3_000).to_h { |index| [index, 10**9] } })
    more = worker(arenas: { allocated_bytes: (0...4_000).to_h { |index| [index, 10**9] } })

    assert channel.send(most)
    assert_equal most, received(channel)
    assert channel.send(more)
    received = received(channel)

    assert_nil received.arenas
    assert_match(/\Aleft out: with arenas, the report would have \d+ bytes, and the limit is 65536\z/,
                 received.reasons[:arenas])
  end

  def test_a_report_without_arenas_that_is_still_too_large_has_no_tags
    channel = Memscope::Workers::Channel.new
    rows = Array.new(500) { |index| Memscope::Tags::Row.capture({ name: index.to_s * 20, runs: 1, running: 0 }) }
    arenas = { allocated_bytes: (0...4_000).to_h { |index| [index, 10**9] } }
    channel.send(worker(tags: rows, arenas: arenas))
    received = received(channel)

    assert_equal [nil, nil], [received.arenas, received.tags]
    assert_equal %i[arenas tags], received.reasons.keys.last(2)
    channel.send(worker(tags: rows.first(50), arenas: arenas))

    assert_equal rows.first(50), received(channel).tags
  end

  # The master goes by the first fields of a Worker before it parses.
  def test_how_a_report_begins
    received = Memscope::Workers.const_get(:Received)

    assert_equal Process.pid, received.sender(worker.to_json)
    assert_nil received.sender(worker(role: :master, index: nil).to_json)
    assert_nil received.sender(worker.to_json[0, 60])
  end

  def test_a_report_is_dropped_where_the_master_is_behind
    channel = Memscope::Workers::Channel.new
    sent = Array.new(2000) { channel.send(worker) } # if one of them waited, it would wait for ever

    assert_includes sent, true
    refute sent.last
    assert_equal worker, received(channel)
    assert channel.send(worker), "there is room again"
    channel.keep_writer

    refute channel.send(worker), "nobody is there"
  end
end
