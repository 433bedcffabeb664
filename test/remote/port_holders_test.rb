# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/remote/port_holders"
require "socket"

# The processes that hold a listening socket are found, by IPv4 and IPv6, and none for another port.
class PortHoldersTest < MemscopeTest
  def test_processes_that_listen
    TCPServer.open("127.0.0.1", 0) do |server|
      child = Process.spawn(RbConfig.ruby, "--disable-gems", "-e", "sleep", server => server, :in => File::NULL)

      assert_equal [Process.pid, child].sort, Memscope::PortHolders.pids(server.addr[1])
    ensure
      Process.kill(:KILL, child)
      Process.wait(child)
    end
  end

  def test_ipv6
    TCPServer.open("::1", 0) { |server| assert_equal [Process.pid], Memscope::PortHolders.pids(server.addr[1]) }
  rescue Errno::EADDRNOTAVAIL
    skip "this machine has no IPv6"
  end

  # A connection has the same port, and does not listen.
  def test_nobody_listens
    server = TCPServer.open("127.0.0.1", 0)
    client = TCPSocket.open("127.0.0.1", server.addr[1])
    connection = server.accept
    server.close

    assert_empty Memscope::PortHolders.pids(connection.local_address.ip_port)
  ensure
    [client, connection].compact.each(&:close)
  end
end
