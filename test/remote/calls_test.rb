# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "minitest/mock"
require "memscope/remote/calls"

# Calls and their options, well-formed or not.
class CallsTest < MemscopeTest
  include Listening

  def test_options
    skip_under_sanitizer
    process = listening

    assert_operator client(process).call(:ledger, deep: true).dig(:malloc, :main_heap, :in_use).bytes, :positive?
    error = assert_raises(ArgumentError) { client(process).call(:ledger, deep: "yes") }

    assert_equal 'Memscope.ledger: deep: given "yes", allowed: true, false', error.message
    error = assert_raises(ArgumentError) { client(process).call(:ledger, depth: 1) }

    assert_equal 'ledger: an option: given "depth", allowed: deep, shared, objects, strict, gc, garbage', error.message
    error = assert_raises(ArgumentError) { client(process).call(:purge, levers: ["rm"]) }

    assert_match(/\Apurge: a lever: given "rm", allowed: gc, compact/, error.message)
    error = assert_raises(ArgumentError) { client(process).call(:malloc_profile_stop, gc: 1) }

    assert_equal "gc: given 1, allowed: true, false", error.message
    error = assert_raises(ArgumentError) { client(process).call(:heap_graph, class_name: "\xff") }

    assert_equal "Memscope::Client#call: options of heap_graph: given #{{ class_name: "\xff" }.inspect}, " \
                 "allowed: text in UTF-8",
                 error.message
  end

  def test_malformed_requests
    process = listening

    [["", nil], ["\n", "a request: given \"\", allowed: one line of JSON, an object"],
     ["{\n", "a request: given \"{\", allowed: one line of JSON, an object"],
     ["[1]\n", "a request: given [1], allowed: an object"], ["1\n", "a request: given 1, allowed: an object"],
     ["{\"call\":\"exit\"}\n", /\Acall: given "exit", allowed: rss, /],
     ["{\"call\":\"send\",\"options\":{}}\n", /\Acall: given "send"/], ["{\"call\":7}\n", /\Acall: given 7/],
     ["{\"call\":\"rss\",\"eval\":\"1\"}\n", /\Aa request: given \["call", "eval"\], allowed: call, options/],
     ["{\"call\":\"rss\",\"options\":[]}\n", "rss: options: given [], allowed: an object"],
     ["{\"call\":\"rss\",\"options\":{\"a\":1}}\n", "rss: an option: given \"a\", allowed: none"],
     ["{\"json_class\":\"File\",\"call\":\"rss\"}\n", /\Aa request/],
     ["#{'[' * 9000}\n", /\Aa request/], ["\xff\x00\xfe{}\n", /\Aa request/], ["x" * 16_385, /16384 bytes/],
     ["{\"call\":\"purge\",\"options\":{\"levers\":{}}}\n", /\Apurge: levers: given \{\}/],
     ["{\"call\":\"purge\",\"options\":{\"dry_run\":1}}\n", /\AMemscope.purge: dry_run/],
     ["{\"call\":\"size_classes\",\"options\":{\"arena\":\"x\"}}\n", /\AMemscope.size_classes: arena/]]
      .each { |bytes, message| assert_answer(message, process, bytes) }

    assert_raises(SystemCallError) { raw(process, "x" * 10_000_000) }
    assert_operator client(process).call(:rss), :positive?
    assert_empty File.read(File.join(@directory, "err"))
  end

  # A collection that a reading asks for is refused before the call runs, and its client does not stay.
  def test_no_collections_where_actions_are_off
    process = listening(env: { "MEMSCOPE_ACTIONS" => "0" })

    { doctor: { gc: true }, census: { gc: true }, ruby_heap: { collect: true } }.each do |call, options|
      error = assert_raises(Memscope::Client::Failed) { client(process).call(call, **options) }

      assert_match(/: this process allows no actions: its setting `actions` is false\z/, error.message)
      assert_operator client(process).call(:rss), :positive?
    end
  end

  # Else the listener would not come to the clients behind it, or would end.
  def test_whatever_a_request_raises_is_an_answer
    require "memscope/remote/calls"
    calls = Memscope::Calls
    [NoMemoryError, LoadError, Errno::EMFILE].each do |error|
      calls.stub(:check_actions, -> { raise error }) do
        assert_equal error.name, JSON.parse(calls.answer('{"call":"doctor","options":{"gc":true}}'))["kind"]
      end
    end
  end

  private

  def assert_answer(message, process, bytes)
    return if message.nil? && UNIXSocket.open(socket_of(process), &:close_write).nil?

    error = JSON.parse(raw(process, bytes))

    assert_operator message, :===, error["error"], bytes[0, 60]
    assert_equal "Memscope::Invalid", error["kind"]
  end
end
