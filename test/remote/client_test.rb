# frozen_string_literal: true

require "minitest/mock"
require_relative "../test_helper"
require_relative "../support/listening"

# What a process is told when another one does not answer, or not as memscope does.
class ClientTest < MemscopeTest
  include Listening

  def test_a_client_without_descriptors_does_not_say_that_the_process_is_gone
    process = listening
    asking = start("Memscope.eager_load!")
    asking.tell(<<~RUBY.tr("\n", ";"))
      path = #{socket_of(process).inspect}
      known = Memscope::Client.new(#{process.pid})
      known.call(:rss)
      soft, hard = Process.getrlimit(:NOFILE)
      Process.setrlimit(:NOFILE, 0, hard)
      asks = [-> { known }, -> { Memscope::Client.new(#{process.pid}) }, -> { Memscope::Client.at(path) }]
      errors = asks.map do |ask|
        ask.call.call(:rss)
      rescue StandardError => e
        [e.class.name, e.message[/[^:]*\\z/], e.message[/no process \\d/]]
      end
      Process.setrlimit(:NOFILE, soft, hard)
      errors
    RUBY

    assert_equal ([["Memscope::Client::Unreachable", " Too many open files", nil]] * 3).inspect, asking.gets
  end

  def test_a_client_follows_no_link
    process = listening
    decoy = start
    File.symlink(socket_of(process), File.join(sockets, "#{decoy.pid}.sock"))

    assert_equal :silent, assert_raises(Memscope::Client::Unreachable) { client(decoy).call(:rss) }.why
  end

  def test_where_the_kernel_lists_no_sockets
    process = listening
    read = File.method(:binread)
    hidden = ->(path, *more) { path.end_with?("/net/unix") ? raise(Errno::EACCES, path) : read.call(path, *more) }
    error = File.stub(:binread, hidden) do
      assert_raises(Memscope::Client::Unreachable) { Memscope::Client.new(process.pid).call(:rss) }
    end

    assert_equal :silent, error.why
    assert_match(%r{. If it listens, name its socket \(--socket PATH\), .* /proc/\d+/net/unix: Permission denied\z},
                 error.message)
  end

  # With hidepid=2, /proc has no other user's processes. No process has this pid.
  def test_a_process_that_proc_hides_is_not_gone
    pid = 4_194_305
    error = Process.stub(:kill, ->(*) { raise Errno::EPERM }) do
      assert_raises(Memscope::Client::Unreachable) { Memscope::Client.new(pid).call(:rss) }
    end

    assert_equal [:foreign, "process #{pid} is another user's, and /proc hides it (hidepid): run memscope as that " \
                            "user, or as root"], [error.why, error.message]
    assert_equal :gone, assert_raises(Memscope::Client::Unreachable) { Memscope::Client.new(pid).call(:rss) }.why
  end

  # A process can run anything that answers in its name. It answers whoever asks: memscope ps, run by another test, asks
  # all processes that listen.
  { "not json\n" => "is not JSON", "[]\n" => "is not a JSON object", "\xff\n" => "is not JSON",
    "{\"ok\":{}}\n" => /does not understand .*: Memscope::Ledger.from_h: schema/,
    "{\"ok\":7}\n" => "does not understand",
    "{}\n" => /process \d+: \z/, "{\"error\":\"\\u001b[2J\\u202e\",\"kind\":\"SystemExit\"}\n" => /: \?\[2J\?\z/,
    "#{'[' * 200}\n" => "is not JSON", "" => "hung up",
    "{\"error\":\"\\u061c\"}\n" => /: \?\z/ }.each_with_index do |(answer, message), number|
    define_method("test_an_answer_that_is_none_#{number}") do
      process = start(<<~RUBY, requires: ["socket"])
        Dir.mkdir(#{sockets.inspect}, 0700)
        server = UNIXServer.new("#{sockets}/\#{Process.pid}.sock")
        def answer(socket)
          socket.write(#{answer.dump}) if socket.gets
        rescue SystemCallError # who asked has gone
          nil
        ensure
          socket.close
        end
        Thread.new { loop { answer(server.accept) } }
      RUBY
      error = assert_raises(Memscope::Client::Failed, Memscope::Client::Unreachable) { client(process).call(:ledger) }

      assert_match(message, error.message)
    end
  end

  # Another user's socket must not keep root from listing all processes.
  def test_a_socket_of_another_type
    process = start("held = Socket.new(:UNIX, :DGRAM)", requires: ["socket"])
    process.tell("Dir.mkdir(#{sockets.inspect}, 0700); " \
                 "held.bind(Socket.sockaddr_un(#{socket_of(process).inspect}))")
    process.gets
    client = client(process, path: socket_of(process))

    assert_equal :untrusted, assert_raises(Memscope::Client::Unreachable) { client.call(:rss) }.why
    refute_predicate client, :listens?
  end

  def test_no_answer
    process = start(<<~RUBY, requires: ["socket"])
      Dir.mkdir(#{sockets.inspect}, 0700)
      server = UNIXServer.new("#{sockets}/\#{Process.pid}.sock")
    RUBY
    error = assert_raises(Memscope::Client::Unreachable) { client(process, timeout: 0.2).call(:rss) }

    assert_equal ["process #{process.pid} does not answer within 0.2 s", :busy], [error.message, error.why]
  end

  def test_no_answer_of_a_process_that_is_stopped
    process = listening
    Process.kill(:STOP, process.pid)
    sleep 0.01 until File.read("/proc/#{process.pid}/stat").include?(") T ")
    error = assert_raises(Memscope::Client::Unreachable) { client(process, timeout: 0.2).call(:rss) }

    assert_equal "process #{process.pid} does not answer within 0.2 s, since it is stopped, as by SIGSTOP or by a " \
                 "debugger",
                 error.message
  ensure
    Process.kill(:CONT, process.pid)
  end

  def test_a_client_of_paths_that_are_none
    [nil, 0, [], {}, :path, "relative", "/utf-32".encode("UTF-32BE"), "/x\0y"].each do |path|
      error = assert_raises(ArgumentError, path.inspect) { Memscope::Client.at(path) }

      assert_equal "a socket's path: given #{path.inspect}, allowed: an absolute path of at most 107 bytes",
                   error.message
    end
  end
end
