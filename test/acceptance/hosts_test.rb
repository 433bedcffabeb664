# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_process"
require_relative "../support/services"
require_relative "../support/web_server"
require "socket"
require "tmpdir"

# Programs with connections, locks and children of their own notice nothing of the children that read for them.
#
# `rake battery:hosts` installs databases' clients, Unicorn and gRPC, which are not in the bundle.
class HostsTest < MemscopeTest
  include Services

  parallelize_me!

  # Reads a heap whose walk takes longer than a fork.
  READ = <<~'RUBY'
    require "json"
    require "tmpdir"

    LARGE = Array.new(150_000) { |number| number.odd? ? "text #{number}" : [number] }

    # What reads, by a child each.
    def read
      Dir.mktmpdir do |directory|
        [Memscope.heap_graph(top: 1).walked_in, Memscope::Census.bounded(budget_us: 0).walked_in,
         Memscope::RubyHeap.bounded(objects: true, budget_us: 0).walked_in,
         Memscope.ledger(garbage: true).garbage_bytes.class, Memscope.dump("#{directory}/heap").class]
      end
    end

    # What the kernel knows of each descriptor: its file, offset, flags and locks.
    def descriptors
      paths = Dir.children("/proc/self/fd").select { |number| File.symlink?("/proc/self/fd/#{number}") }
      paths.to_h do |number|
        facts = File.readlines("/proc/self/fdinfo/#{number}").grep(/^(pos|flags|mnt_id|ino|lock):/)
        [number, [File.readlink("/proc/self/fd/#{number}"), facts]]
      end
    end

    # Whatever the block yields is the same after the readings, and so are all descriptors.
    def unchanged
      read # opens a file that stays open
      before = [descriptors, yield]
      done = read
      after = [descriptors, yield]
      before == after ? done : [before, after]
    end
  RUBY

  DONE = ["child", "child", "child", "Integer", "Memscope::Dump"].freeze

  def in_directory(&) = Dir.mktmpdir("hosts", &)

  # ---- what a process has open ----

  # A POSIX lock is lost when a process closes any descriptor of the file.
  both_allocators "files, locks and pipes", in_full: [:jemalloc] do |preload|
    in_directory do |directory|
      answer = child_json(<<~RUBY, preload: preload)
        #{READ}
        Dir.chdir(#{directory.dump})
        at_exit { File.write("ended", "x", mode: "a") }
        File.write("read", "0123456789")
        half = File.open("read")
        half.sysread(4)
        buffered = File.open("buffered", "w")
        buffered.write("once")
        File.open("flock", "w").tap { |file| $flock = file }.flock(File::LOCK_EX)
        posix = File.open("posix", "w")
        posix.fcntl(6, [1, 0, 0, 0, 0].pack("ssx4qqix4")) # F_SETLK, F_WRLCK
        reading, writing = IO.pipe
        writing.write("unread")
        done = unchanged { File.size("buffered") }
        buffered.close
        writing.close
        locks = descriptors[posix.fileno.to_s].last.grep(/POSIX/).size
        puts JSON.generate(done: done, locks: locks, rest: half.read, unread: reading.read)
      RUBY

      assert_equal({ "done" => DONE, "locks" => 1, "rest" => "456789", "unread" => "unread" }, answer)
      assert_equal %w[once x], [File.read("#{directory}/buffered"), File.read("#{directory}/ended")]
    end
  end

  # A transaction that is open, a subscription, and a thread that waits for an answer. A client that has been idle for
  # 30 seconds would ask for a PONG by itself.
  def test_connections_to_redis
    skip_without_redis
    in_directory do |directory|
      with_redis(directory) do |socket|
        answer = child_json(<<~RUBY, requires: %w[redis-client], bundle: true)
          #{READ}
          one, waiting, admin = Array.new(3) { RedisClient.new(path: #{socket.dump}, timeout: 60, idle_timeout: nil) }
          one.call("MULTI")
          one.call("SET", "key", "committed")
          news = RedisClient.new(path: #{socket.dump}, timeout: 60).pubsub
          news.call("SUBSCRIBE", "news")
          news.next_event(60)
          popped = Thread.new { waiting.blocking_call(60, "BLPOP", "list", 0) }
          sleep 0.01 until admin.call("CLIENT", "LIST").include?("cmd=blpop")
          done = unchanged do
            [admin.call("INFO", "stats")[/total_connections_received:\\d+/],
             admin.call("CLIENT", "LIST").scan(/\\bid=\\d+.* fd=\\d+|flags=\\w+|multi=\\S+/)]
          end
          committed = one.call("EXEC")
          admin.call("PUBLISH", "news", "heard")
          admin.call("RPUSH", "list", "popped")
          puts JSON.generate(done: done, heard: [committed, admin.call("GET", "key"), news.next_event(60).last,
                                                 popped.value.last])
        RUBY

        assert_equal({ "done" => DONE, "heard" => [["OK"], "committed", "heard", "popped"] }, answer)
      end
    end
  end

  # ---- servers ----

  # Puma has accepted the connection before the child is forked.
  def test_pumas_response_ends_while_a_child_is_held
    WebServer.run do |server|
      TCPSocket.open("127.0.0.1", server.port) do |connection|
        connection.write("GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = connection.readpartial(4096)
        text << connection.readpartial(4096) until text.end_with?("hello")
        asking = Thread.new { server.get("/graph?50") }
        child = server.until_found("child") { children_of(server.pid).first }
        connection.write("GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

        assert connection.wait_readable(30)
        assert_match(/hello\z/, connection.read)
        assert_equal [child], children_of(server.pid)
        Process.kill(:KILL, child)

        assert_match(/the child ended before it answered/, asking.value.body)
        assert_empty children_of(server.pid)
      end
    end
  end

  # The first process of a container reaps all orphans.
  class PumaAsInit < PumaProcess
    include Services

    COMMAND = %w[unshare --pid --fork --mount-proc --kill-child].freeze

    def initialize(directory)
      configuration = File.join(directory, "puma.rb")
      File.write(configuration, <<~RUBY)
        workers 2
        worker_check_interval 1
        bind "tcp://127.0.0.1:0"
        rackup #{File.join(__dir__, '../support/workloads/web.ru').dump}
        require "memscope"
        after_booted do
          #{READ.gsub("\n", "\n  ")}
          Thread.new { puts "read by \#{Process.pid}: \#{JSON.generate([read, read].uniq)}" }
        end
      RUBY
      super([*COMMAND, *self.class.command("puma", "-C", configuration)], self.class.environment(nil, {}), directory)
    end

    def master = children_of(pid).first

    # unshare itself ignores the signal.
    def stop
      Process.kill(:TERM, master) if master
      super
    end
  end

  def test_pumas_master_as_the_first_process
    skip "only root can make a PID namespace" unless Process.uid.zero?
    skip "no PID namespaces here" unless system(*PumaAsInit::COMMAND, "true", err: File::NULL)

    in_directory do |directory|
      PumaAsInit.run(directory) do |server|
        said = server.until_found("reading") { server.log[/^read by .*/] }

        assert_equal "read by 1: #{JSON.generate([DONE])}", said
        workers = children_of(server.master)

        assert_equal 2, workers.size
        Process.kill(:KILL, workers.first)
        server.until_found("new worker") { children_of(server.master).then { |now| now.size == 2 && now != workers } }
        server.until_found("boot") { server.log.scan(" booted in ").size == 3 }
      end
    end
  end

  # ---- what the bundle does not have ----

  # Where rake battery:hosts has installed gems.
  GEMS = ENV.fetch("MEMSCOPE_HOST_GEMS", nil)

  # Runs a script with those gems.
  def with_gems(script, requires)
    skip "only in rake battery:hosts" unless GEMS

    child_json("#{READ}\n#{script}", requires: requires, gems: true, env: gem_environment)
  end

  def gem_environment = { "GEM_HOME" => GEMS, "GEM_PATH" => GEMS, "GRPC_ENABLE_FORK_SUPPORT" => "1" }

  # SQLite's locks are POSIX locks.
  def test_a_transaction_of_sqlite
    in_directory do |directory|
      answer = with_gems(<<~RUBY, %w[sqlite3])
        ours, theirs = Array.new(2) { SQLite3::Database.new(File.join(#{directory.dump}, "rows.db")) }
        ours.execute("CREATE TABLE rows (name text)")
        ours.execute("BEGIN IMMEDIATE")
        ours.execute("INSERT INTO rows VALUES ('committed')")
        locked = -> { theirs.execute("BEGIN IMMEDIATE") rescue $!.class.name }
        done = unchanged(&locked)
        alone = locked.call
        ours.execute("COMMIT")
        puts JSON.generate(done: done, alone: alone, rows: theirs.execute("SELECT name FROM rows").flatten,
                           check: theirs.execute("PRAGMA integrity_check").flatten)
      RUBY

      assert_equal({ "done" => DONE, "alone" => "SQLite3::BusyException", "rows" => ["committed"], "check" => ["ok"] },
                   answer)
    end
  end

  POSTGRESQL = Dir["/usr/lib/postgresql/*/bin"].max

  # PostgreSQL does not run as root.
  def postgresql(program, *arguments)
    other = Process.uid.zero? ? %w[setpriv --reuid=postgres --regid=postgres --clear-groups] : []
    result = ChildProcess.run_command(*other, "#{POSTGRESQL}/#{program}", *arguments)

    assert_predicate result, :success?, result
  end

  # @yieldparam log [String] the path of its log
  def with_postgresql(directory)
    File.chmod(0o777, directory)
    data = "#{directory}/data"
    settings = "-k #{directory} -c fsync=off -c listen_addresses= -c log_connections=on -c log_disconnections=on"
    postgresql("initdb", "--auth=trust", "--username=postgres", "--no-sync", data)
    postgresql("pg_ctl", "-D", data, "-l", "#{directory}/log", "-o", settings, "-w", "start")
    yield "#{directory}/log"
  ensure
    postgresql("pg_ctl", "-D", data, "-m", "immediate", "stop") if data && File.exist?("#{data}/postmaster.pid")
  end

  def test_a_transaction_of_postgresql
    skip "only in rake battery:hosts, with PostgreSQL" unless GEMS && POSTGRESQL

    in_directory do |directory|
      with_postgresql(directory) do |log|
        answer = with_gems(<<~RUBY, %w[pg])
          ours, theirs = Array.new(2) { PG.connect(host: #{directory.dump}, user: "postgres", dbname: "postgres") }
          ours.exec("CREATE TABLE rows (name text)")
          ours.exec("BEGIN")
          ours.exec("INSERT INTO rows VALUES ('committed')")
          theirs.exec("LISTEN news")
          backends = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY pid"
          done = unchanged { [ours.exec(backends).column_values(0), theirs.exec("SELECT * FROM rows").ntuples] }
          ended = File.read(#{log.dump}).scan(/disconnection|EOF/)
          ours.exec("NOTIFY news")
          ours.exec("COMMIT")
          puts JSON.generate(done: done, ended: ended, heard: theirs.wait_for_notify(60),
                             rows: theirs.exec("SELECT name FROM rows").column_values(0))
        RUBY

        assert_equal({ "done" => DONE, "ended" => [], "heard" => "news", "rows" => ["committed"] }, answer)
      end
    end
  end

  # gRPC registers handlers that run around a fork, and has threads of its own.
  def test_a_server_of_grpc
    answer = with_gems(<<~RUBY, %w[grpc])
      class Echo
        include GRPC::GenericService
        self.marshal_class_method = :pack
        self.unmarshal_class_method = :unpack
        self.service_name = "echo"
        class Text < Struct.new(:text)
          def self.pack(message) = message.text
          def self.unpack(bytes) = new(bytes)
        end
        rpc :Say, Text, Text
        rpc :Each, Text, stream(Text)
        def say(text, _call) = text
        def each(text, _call) = Array.new(3) { text }.each
      end
      server = GRPC::RpcServer.new
      port = server.add_http2_port("127.0.0.1:0", :this_port_is_insecure)
      server.handle(Echo.new)
      Thread.new { server.run }
      server.wait_till_running(60)
      stub = Echo.rpc_stub_class.new("127.0.0.1:\#{port}", :this_channel_is_insecure)
      said = [stub.say(Echo::Text.new("before")).text]
      stream = stub.each(Echo::Text.new("stream"))
      said << stream.next.text
      done = [read, read].uniq
      said << stream.next.text << stub.say(Echo::Text.new("after")).text
      puts JSON.generate(done: done, said: said)
      $stdout.flush
      exit!(0) # the server may wait for its stream for ever, with or without a reading
    RUBY

    assert_equal({ "done" => [DONE], "said" => %w[before stream stream after] }, answer)
  end

  # Unicorn's master waits with waitpid2(-1, WNOHANG), and logs each process that it reaps.
  def test_unicorn
    skip "only in rake battery:hosts" unless GEMS

    in_directory do |directory|
      File.write("#{directory}/reading.rb", READ)
      File.write("#{directory}/config.ru", "run ->(_env) { [200, {}, [JSON.generate([$$, read])]] }")
      File.write("#{directory}/unicorn.rb", <<~RUBY)
        listen "#{directory}/unicorn.sock"
        before_fork { |_server, _worker| $reading ||= Thread.new { File.write("#{directory}/read", JSON.generate([read, read].uniq)) } }
      RUBY
      command = [*ChildProcess.ruby(gems: true), "-rmemscope", "-r./reading",
                 "-e", "load Gem.bin_path('unicorn', 'unicorn')", "--", "-c", "unicorn.rb", "config.ru"]
      spawned(*command, ChildProcess.environment(nil, gem_environment), directory) do |master, log|
        await("#{directory}/read", log)
        worker, done = JSON.parse(answer_of("#{directory}/unicorn.sock"))

        assert_equal [[DONE], DONE], [JSON.parse(File.read("#{directory}/read")), done]
        assert_equal [worker], children_of(master)
        Process.kill(:KILL, worker)
        other, = JSON.parse(answer_of("#{directory}/unicorn.sock"))

        refute_equal worker, other
        assert_equal(["worker=0"], File.read(log).scan(/reaped .*(worker=\S+)/).flatten)
      end
    end
  end

  def answer_of(socket)
    UNIXSocket.open(socket) do |connection|
      connection.write("GET / HTTP/1.0\r\n\r\n")
      connection.read.lines.last
    end
  end
end
