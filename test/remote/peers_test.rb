# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "tmpdir"

class PeersTest < MemscopeTest
  include Listening

  Peers = Memscope::Peers

  def test_the_processes_that_listen_beside_a_socket
    process = listening("1")
    pid = process.pid
    process.tell("Memscope::Listener.current.path")
    path = process.gets.undump
    found = Peers.entries(pids: Peers.beside(path)).find { |entry| entry.process.pid == pid }

    assert_predicate found.process, :listens?
    assert_operator found.process.rss_bytes, :>, 1 << 20
    assert_nil found.verdict, "it keeps no history"
  end

  def test_only_sockets_are_named_after_processes
    Dir.mktmpdir("memscope") do |directory|
      %w[12.sock 34.sock 5.sock.lock x.sock 67].each { |name| File.write("#{directory}/#{name}", "") }

      assert_equal [12, 34], Peers.beside("#{directory}/12.sock").sort
      assert_empty Peers.entries(pids: [Process.clock_gettime(Process::CLOCK_MONOTONIC).to_i + 4_000_000])
    end
  end
end
