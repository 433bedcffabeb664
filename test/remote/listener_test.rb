# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"

class ListenerTest < MemscopeTest
  include Listening

  NOBODY = 65_534

  def test_each_call_answers_what_it_does_in_the_process
    process = listening
    %i[allocator snapshot ledger arenas size_classes fragmentation mappings ruby_heap census process_memory cgroup lint
       doctor].each do |call|
      reading = client(process).call(call)

      assert_equal [process.pid, Memscope.public_send(call).class], [reading.pid, reading.class]
    end
    assert_operator client(process).call(:rss), :>, 1_000_000
    assert_predicate client(process).call(:purge, levers: ["gc"], dry_run: true), :dry_run?
    assert_equal [:gc], client(process).call(:purge, levers: %i[gc]).levers.map(&:name)
  end

  # Required beside threads that keep the GVL busy, a default gem takes minutes: what answers need of Ruby's standard
  # library is loaded when the process begins to listen.
  def test_answers_require_nothing_of_the_standard_library
    skip_under_sanitizer
    process = listening(<<~RUBY, requires: [])
      module Required
        NAMES = []
        def require(name) = NAMES.push(name) && super
      end
      Object.prepend(Required)
      require "memscope"
      loaded = -> { [*Required::NAMES, *$LOADED_FEATURES].reject { |name| name.include?("/lib/memscope/") } }
      before = loaded.call
    RUBY
    ask_everything(client(process))
    process.tell("loaded.call - before")

    assert_equal "[]", process.gets
  end

  def ask_everything(client)
    %i[doctor lint workers history verdict tags heap_graph census take_census arenas].each { |call| client.call(call) }
    client.call(:ledger, deep: true, garbage: true)
    client.call(:purge, dry_run: true)
    client.call(:object_profile_stop, token: client.call(:object_profile_start, seconds: 60))
    client.call(:malloc_profile_stop, token: client.call(:malloc_profile_start, seconds: 60, backend: "imports"))
  end

  def test_a_listener_that_accepts_nothing_is_busy
    Dir.mktmpdir do |directory|
      path = File.join(directory, "busy.sock")
      UNIXServer.open(path) do |server|
        server.listen(0)
        waiting = []
        assert_raises(Errno::EAGAIN) do
          loop { (waiting << Socket.new(:UNIX, :STREAM)).last.connect_nonblock(Socket.sockaddr_un(path)) }
        end
        error = assert_raises(Memscope::Client::Unreachable) { Memscope::Client.at(path) }

        assert_equal :busy, error.why, error.message
      ensure
        waiting.each(&:close)
      end
    end
  end

  def test_the_socket_is_its_own_users_only
    process = listening

    assert_equal 0o600, File.stat(socket_of(process)).mode & 0o7777
    assert_equal 0o700, File.stat(sockets).mode & 0o7777
  end

  def test_it_listens_once_and_closes
    process = start

    process.tell("(Memscope.listen.equal?(Memscope.listen)).to_s + Memscope.listen.path")

    assert_equal "true#{socket_of(process)}".inspect, process.gets
    process.tell("Memscope.listen.close; File.exist?(#{socket_of(process).inspect})")

    assert_equal "false", process.gets
    eventually_told(process, "Thread.list.size") { |threads| threads == "1" }
    process.tell("Memscope.listen.path; 1")
    process.gets

    assert_operator client(process).call(:rss), :positive?
    process.tell("Thread.list.last.kill.join; Memscope.listen; Memscope.listen.open?")

    assert_equal "true", process.gets, "somebody killed the thread"
    assert_operator client(process).call(:rss), :positive?
    process.stop

    assert_empty Dir.children(sockets)
  end

  def test_the_descriptors_are_closed_on_exec
    process = listening
    process.tell("`ls -l /proc/self/fd`.scan('socket').size")

    assert_equal "0", process.gets
    process.input.puts("exec('sleep', '600')")
    wait { File.read("/proc/#{process.pid}/comm") == "sleep\n" }
    # The kernel closes the descriptors during exec, a moment after the process has its new name.
    wait { why_unreachable(process) == :silent }
  end

  def why_unreachable(process)
    client(process).call(:rss)
    :answered
  rescue Memscope::Client::Unreachable => e
    e.why
  end

  def test_a_forked_child_listens_itself
    process = listening
    process.tell("child = fork { sleep }; grandchild = nil; child")
    child = Integer(process.gets)
    wait { Memscope::Client.new(child).listens? } # the socket's file exists a moment earlier

    assert_equal child, Memscope::Client.new(child).call(:ledger).pid
    assert_equal process.pid, client(process).call(:ledger).pid
    process.tell("Process.kill(:KILL, #{child}); Process.wait; fork {}; Process.wait; " \
                 "Dir.children(#{sockets.inspect})")

    assert_equal [File.basename(socket_of(process))].inspect, process.gets, "a killed child's was swept"
    assert_equal process.pid, client(process).call(:ledger).pid
  end

  # A child forked without Ruby's knowledge holds the parent's socket, and may outlive the parent.
  def test_a_child_that_holds_its_parents_socket_is_told_from_it
    process = start("server = UNIXServer.new(#{File.join(@directory, 'fake').inspect})", requires: %w[memscope socket])
    process.tell(<<~RUBY.tr("\n", ";"))
      Dir.mkdir(#{sockets.inspect}, 0700)
      ready, told = IO.pipe
      stranger = fork { UNIXServer.new(#{socket_of(process).inspect}); told.puts; sleep }
      ready.gets
      stranger
    RUBY
    stranger = Integer(process.gets)
    error = assert_raises(Memscope::Client::Unreachable) { client(process).call(:rss) }

    assert_equal :untrusted, error.why
    assert_equal "process #{stranger} of uid #{Process.euid} holds the socket of process #{process.pid}", error.message
    process.tell("Process.kill(:KILL, #{stranger})")
    process.gets
  end

  def test_the_setting_listen_without_rails
    process = start("Memscope.configure { |c| c.socket_directory = #{sockets.inspect}; c.listen = true }")

    assert_equal process.pid, client(process).call(:ledger).pid
  end

  def test_process_daemon
    process = listening("trap(:TERM) { exit }")
    process.input.puts("Process.daemon(true, true); File.write(#{"#{@directory}/pid".inspect}, Process.pid); sleep")
    wait { File.size?("#{@directory}/pid") }
    daemon = Integer(File.read("#{@directory}/pid"))

    assert_equal daemon, Memscope::Client.new(daemon).call(:ledger).pid
    assert_equal ["#{daemon}.sock"], Dir.children(sockets)
  ensure
    Process.kill(:TERM, daemon) if daemon
  end

  def test_no_actions_where_they_are_off
    process = listening(env: { "MEMSCOPE_ACTIONS" => "0" })
    error = assert_raises(Memscope::Client::Failed) { client(process).call(:purge) }

    assert_equal "process #{process.pid}: this process allows no actions: its setting `actions` is false", error.message
    assert_predicate client(process).call(:purge, levers: ["gc"], dry_run: true), :dry_run?
  end

  # Without Rails, the error is raised where the setting is used; the process continues, and nobody gains access.
  def test_a_wrong_variable_opens_nothing
    process = listening(env: { "MEMSCOPE_ACTIONS" => "of" })

    refute_path_exists socket_of(process)
    assert_match(/\Amemscope: MEMSCOPE_LISTEN: this process \(pid #{process.pid}\) does not listen: MEMSCOPE_ACTIONS: /,
                 File.read(File.join(@directory, "err")))
    Dir.mkdir(sockets, 0o700)
    process.tell("Memscope.listen(path: #{socket_of(process).inspect}).path")
    process.gets
    error = assert_raises(ArgumentError) { client(process).call(:purge, levers: ["gc"]) }

    assert_match(/\AMEMSCOPE_ACTIONS: given "of", allowed: 1, /, error.message)
    assert_operator client(process).call(:rss), :positive?
  end

  def test_slow_clients_hold_up_nobody
    process = listening
    slow = Array.new(20) { UNIXSocket.new(socket_of(process)).tap { |socket| socket.write("{") } }
    silent = Array.new(200) { UNIXSocket.new(socket_of(process)) }
    deaf = UNIXSocket.new(socket_of(process)).tap { |socket| socket.write("{\"call\":\"mappings\"}\n") }
    started = now
    writer = Thread.new { slow.each { |socket| socket.write(" ") } while sleep(0.3) }

    assert_operator client(process).call(:rss), :positive?
    assert_operator now - started, :<, 40, "all places were taken twice, for two seconds each"
    wait { slow.all? { |socket| hung_up?(socket) } }
    writer.kill
    took = Array.new(3) { now.then { |before| client(process).call(:rss) && (now - before) } }

    assert_operator took.min, :<, 2, "it had to wait for a place"
  ensure
    writer&.kill
    [slow, silent, deaf].flatten.each(&:close)
  end

  # On a busy machine, sleep may return 2.
  def test_a_slow_call_of_another_client_costs_no_answer
    process = listening(<<~RUBY.tr("\n", ";"))
      patient = Memscope::Listener.const_get(:Connection)
      patient.send(:remove_const, :FETCHING)
      patient.const_set(:FETCHING, 0.5)
      Memscope::Arenas.define_singleton_method(:read) { { large: "x" * 2_000_000 } }
      Memscope::Cgroup.define_singleton_method(:read) { sleep(1) && 1 }
    RUBY
    large, slow = %w[arenas cgroup].map do |call|
      UNIXSocket.new(socket_of(process)).tap { |socket| socket.write("{\"call\":\"#{call}\"}\n") }
    end

    assert_operator large.read.bytesize, :>, 2_000_000
    assert_equal "{\"ok\":1}\n", slow.read
  ensure
    [large, slow].each(&:close)
  end

  def test_a_hundred_clients_at_once
    process = listening
    ledgers = Array.new(100) { Thread.new { client(process).call(:ledger) } }.map(&:value)

    assert_equal [process.pid], ledgers.map(&:pid).uniq
    eventually_told(process, "Dir.children('/proc/self/fd').size") { |descriptors| descriptors.to_i < 15 }
    process.tell("Thread.list.size")

    assert_equal "2", process.gets
  end

  def test_no_descriptors_left
    process = listening("Memscope.rss; Process.setrlimit(:NOFILE, 20)") # rss keeps its descriptor open
    sockets = Array.new(40) { UNIXSocket.new(socket_of(process)) }
    sockets.each(&:close)

    assert_operator client(process).call(:rss), :positive?
  end

  # A socket without a thread would let clients wait in vain, and keep this process from listening.
  def test_a_listener_that_cannot_start_leaves_no_socket
    [["Process.setrlimit(:NOFILE, File.open('/dev/null', &:fileno) + 1, hard)", "Too many open files"],
     ["def (Memscope::Forks).background(*) = raise(ThreadError, 'no threads')", "no threads"]].each do |scarce, why|
      process = start("Memscope.eager_load!")
      process.tell(<<~RUBY.tr("\n", ";"))
        soft, hard = Process.getrlimit(:NOFILE)
        said = begin
          #{scarce}
          Memscope.listen
        rescue StandardError => e
          "\#{e.class}: \#{e.message}"
        end
        Process.setrlimit(:NOFILE, soft, hard)
        [said, File.exist?(#{socket_of(process).inspect})]
      RUBY

      assert_equal ["Memscope::Sockets::Refused: the socket #{socket_of(process)}: #{why}", false].inspect, process.gets
      process.tell("def (Memscope::Forks).background(_) = Thread.new {}; Memscope.listen.path")

      assert_equal socket_of(process).inspect, process.gets
    end
  end

  def test_another_user
    skip_unless_root
    skip_unless_readable_for(NOBODY)
    process = listening
    ran = ChildProcess.run(<<~RUBY, requires: %w[memscope socket])
      Process::Sys.setgid(#{NOBODY}); Process::Sys.setuid(#{NOBODY})
      begin; UNIXSocket.new(#{socket_of(process).inspect}); rescue SystemCallError => e; puts e.class; end
      begin; Memscope::Client.new(#{process.pid}).call(:rss); rescue Memscope::Client::Unreachable => e; puts e.message; end
    RUBY

    refusal = "process #{process.pid} is another user's (uid 0): only that user or root can query it"

    assert_equal "Errno::EACCES\n#{refusal}\n", ran.out, ran

    # The listener refuses another user even if the directory's mode lets that user in.
    FileUtils.chmod(0o777, [@directory, sockets, socket_of(process)])
    ran = ChildProcess.run(<<~RUBY, requires: %w[socket])
      Process::Sys.setgid(#{NOBODY}); Process::Sys.setuid(#{NOBODY})
      socket = UNIXSocket.new(#{socket_of(process).inspect})
      socket.puts '{"call":"rss"}' rescue nil
      p((socket.read rescue nil))
    RUBY

    assert_includes ["\"\"\n", "nil\n"], ran.out, ran
  end

  def test_root_asks_another_users_process
    skip_unless_root
    skip_unless_readable_for(NOBODY)
    FileUtils.chmod(0o755, @directory)
    File.chmod(0o711, @directory)
    Dir.mkdir(sockets, 0o700)
    File.chown(NOBODY, NOBODY, sockets)
    File.write(File.join(@directory, "err"), "")
    process = listening(uid: NOBODY)

    assert_equal NOBODY, File.stat(socket_of(process)).uid
    assert_equal process.pid, client(process).call(:ledger).pid
  end

  def test_another_path_than_it_has
    process = listening
    process.tell("begin; Memscope.listen(path: '/x'); rescue Memscope::Listener::Refused => e; e.message; end")

    assert_equal "Memscope.listen: path: given /x, but this process listens on #{socket_of(process)} already; " \
                 "allowed: that, or close it first".inspect, process.gets
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def wait
    deadline = now + PATIENCE
    sleep 0.01 until (found = yield) || now > deadline

    assert found
  end

  # Makes the process evaluate the script until the answer fits: what happens in its other threads takes time.
  def eventually_told(process, script)
    answer = nil
    wait do
      process.tell(script)
      yield(answer = process.gets)
    end
  rescue Minitest::Assertion
    flunk "#{script}: #{answer}"
  end

  def hung_up?(socket)
    socket.read_nonblock(1, exception: false).nil?
  rescue SystemCallError
    true
  end
end
