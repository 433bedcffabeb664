# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/memory_groups"
require_relative "../support/puma_process"
require "etc"
require "time"
require "tmpdir"

# The boxes of processes that died in different ways, under both allocators. DEATHS=N: so many in all, as
# `rake battery:deaths` sets it.
class DeathsTest < MemscopeTest
  parallelize_me!

  include MemoryGroups

  NATIVE = Memscope.const_get(:Native)
  DEATHS = ENV.fetch("DEATHS", "0").to_i
  # Bytes of the group's memory.
  LIMIT = 72 << 20
  # A busy machine may run the sampling thread late. The battery counts how many samples are older than a second.
  MAX_AGE = 10

  PRELUDE = <<~RUBY
    Memscope.configure { |c| c.black_box = ENV.fetch("BOXES") }
    Memscope::Workers.watch
    sleep 0.005 until Memscope::BlackBox.status&.fetch(:written_at, nil)
    BOX = Memscope.const_get(:Runtime).current.black_box
  RUBY
  # A process that writes all the time, until it is killed.
  WRITES = "loop { BOX.send(:record, Float::INFINITY) }"
  # A leak, in a job.
  GROWS = <<~RUBY
    Memscope::ObjectProfile.start
    held = []
    Memscope::BlackBox::Runs.during("ImportJob") { loop { held << Array.new(500) { "x" * 1000 }; sleep 0.05 } }
  RUBY
  OTHERS = { abort: "Process.kill(:ABRT, Process.pid); sleep", segv: "Process.kill(:SEGV, Process.pid); sleep",
             exit!: "exit!(3)" }.freeze

  def setup
    super
    @directory = Dir.mktmpdir
  end

  def teardown
    FileUtils.remove_entry(@directory)
    super
  end

  # Runs a program that dies. Returns its box, taken apart, and the milliseconds at which it had died.
  def death(script, preload: nil, group: nil)
    boxes = Dir.mktmpdir("boxes", @directory)
    environment = ChildProcess.environment(preload, "BOXES" => boxes, "TERMINATION_LOG" => termination_log)
    command = [*ChildProcess.ruby, "-rjson", "-rmemscope", "-e", "#{PRELUDE}#{script}"]
    command = within(group, command) if group
    pid = spawn(environment, *command, %i[out err] => File::NULL, chdir: @directory, rlimit_core: 0)
    yield pid, boxes if block_given?
    Process.wait(pid)
    died_at = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
    path = Dir.glob("#{boxes}/#{pid}-*.box").fetch(0) { flunk("no box of #{$CHILD_STATUS}") }
    [NATIVE.read_black_box(path), died_at]
  end

  def termination_log = File.join(@directory, "termination-log")

  def slot(box, name) = box[:slots][name]&.then { |slot| JSON.parse(slot[:text], symbolize_names: true) }

  def assert_whole(box)
    assert_kind_of Hash, box
    assert_operator slot(box, :identity)[:pid], :>, 1
    assert_includes box.dig(:history, :curves).map { |curve| curve[:id] }, :rss
    ledger = slot(box, :ledger) or return
    ledger = Memscope::Ledger.from_h(ledger)

    assert_equal ledger.rss_bytes, ledger.rows.sum(&:bytes)
  end

  def killed_at_random(preload)
    box, = death(WRITES, preload: preload) do |pid, boxes|
      sleep 0.01 until Dir.glob("#{boxes}/#{pid}-*.box").any?
      sleep rand * 0.5
      Process.kill(:KILL, pid)
    end

    assert_kind_of Hash, box
    assert_whole(box) if box[:history] && box[:slots].key?(:identity) # it may have been killed before the first sample
  end

  # Returns the seconds between the last sample and the death.
  def killed_at_the_limit(preload)
    in_group(LIMIT) do |group|
      box, died_at = death(GROWS, preload: preload, group: group)

      assert_whole box
      assert_operator slot(box, :limit)[:headroom_bytes], :<, LIMIT / 2
      assert_equal "ImportJob", slot(box, :tags)[:runs].first[:tag]
      assert_equal "String", slot(box, :census)[:classes].first[:name]
      assert_match(/-e:\d+/, slot(box, :lines)[:objects].first[:line])
      (died_at / 1000.0) - Time.iso8601(slot(box, :memory)[:at]).to_f
    end
  end

  both_allocators("a_process_that_is_killed_at_its_limit", in_full: [:jemalloc]) do |preload|
    skip_without_groups
    File.write(termination_log, "")

    assert_operator killed_at_the_limit(preload), :<, MAX_AGE
    assert_match(/ImportJob.*-e:\d+.*String/m, File.read(termination_log))
  end

  def test_a_process_that_is_killed_while_it_writes
    3.times { |number| killed_at_random(number.odd? ? ChildProcess::ALLOCATORS[:jemalloc] : nil) }
  end

  # One worker of a cluster, in a group with room for a master and one worker that grows.
  class Cluster < PumaProcess
    include MemoryGroups

    CONFIGURATION = <<~RUBY
      bind "tcp://127.0.0.1:0"
      workers 1
      threads 1, 1
      silence_single_worker_warning
      plugin :memscope
    RUBY
    # Of the configuration, before any worker.
    GROWS = <<~RUBY
      app do |environment|
        Memscope::BlackBox::Runs.during("GrowController#grow") do
          (Thread.main[:held] ||= []) << ("x" * 2_000_000) && sleep(0.05) while environment["PATH_INFO"] == "/grow"
        end
        [200, {}, ["ok"]]
      end
    RUBY

    # Of config.ru, which each worker loads.
    LOGS = <<~RUBY
      require "logger"
      sleep 1
      Memscope.configure { |c| c.logger = Logger.new("application.log") }
      run ->(_environment) { [200, {}, ["ok"]] }
    RUBY

    def initialize(directory, group = nil)
      File.write(File.join(directory, "puma.rb"), group ? CONFIGURATION + GROWS : CONFIGURATION)
      File.write(File.join(directory, "config.ru"), LOGS)
      command = self.class.command("puma", "-C", "puma.rb")
      super(group ? within(group, command) : command,
            self.class.environment(nil, "RACK_ENV" => "test", "MEMSCOPE_SOCKET_DIRECTORY" => "#{directory}/sockets"),
            directory)
    end

    # The worker is killed in the request, which Net::HTTP would repeat if it were a GET.
    def grow
      request(Net::HTTP::Post.new("/grow"))
    rescue SystemCallError, IOError
      nil
    end
  end

  # The next worker tells of it when it has booted, and the box explains it.
  def test_a_worker_of_puma_that_is_killed_at_its_limit
    skip_without_groups
    skip_under_sanitizer
    in_group(LIMIT * 2) do |group|
      Cluster.run(@directory, group) do |server|
        request = Net::HTTP::Get.new("/")
        server.until_found("answer") { server.request(request).code == "200" }
        server.grow
        line = server.until_found("line about it") { server.log[/^memscope: puma worker 0 .*/] }
        path = line.split.last
        death = Memscope.postmortem(path)

        assert_match(/Killed by the kernel for lack of memory: .* memscope postmortem/, line)
        assert_equal 1, server.log.scan(/^memscope: puma worker/).size
        assert_equal "GrowController#grow", death.tags.runs.first.tag
        assert_equal "200", server.until_found("answer of the next") { server.request(request).code }
      end
    end
  end

  # Its master notes the status that Puma reaps. Its successor tells once its application has booted.
  def test_a_worker_of_puma_that_crashes
    skip_under_sanitizer
    skip "no kernel before Linux 6.15 tells" if (kernel <=> [6, 15]).negative?
    Cluster.run(@directory) do |server|
      worker = server.until_found("worker") { reported(server.pid) }
      Process.kill(:SEGV, worker.pid)
      log = File.join(@directory, "application.log")
      line = server.until_found("line in the application's log") { File.read(log)[/ memscope: puma worker 0 .*/] }

      assert_match(/Ended by SIG#{RUBY_VERSION < '4' ? 'ABRT' : 'SEGV'}, as the kernel has recorded. A Ruby/, line)
    end
  end

  def kernel = Etc.uname[:release].split(".").first(2).map(&:to_i)

  # The worker that has reported to this master.
  def reported(pid)
    Memscope::Client.new(pid).call(:workers).find { |one| one.role == :worker && one.rss_bytes }
  end

  OTHERS.each do |name, script|
    define_method(:"test_a_process_that_ends_by_#{name}") do
      box, = death(script)

      assert_whole box
      assert_nil slot(box, :ending)
    end
  end

  def test_a_process_without_rights
    skip "only root can be another user" unless Process.uid.zero?
    script = <<~RUBY
      Dir.mkdir("#{@directory}/nobody", 0o700)
      File.chmod(0o755, "#{@directory}")
      File.chown(65_534, 65_534, "#{@directory}/nobody")
      Process::Sys.setresuid(65_534, 65_534, 65_534)
      Memscope.configure { |c| c.black_box = "#{@directory}/nobody" }
      Memscope::Workers.watch
      sleep 0.01 until Memscope::BlackBox.status
      puts JSON.generate(Memscope::BlackBox.status)
      $stdout.flush
      exit!(0)
    RUBY
    status = child_json(script, requires: %w[json])

    assert_nil status["reason"]
    assert_equal 65_534, File.stat(status["path"]).uid
    assert_kind_of Hash, NATIVE.read_black_box(status["path"])
  end

  def test_as_many_deaths_as_the_battery_asks_for
    skip "only in rake battery:deaths" if DEATHS.zero?
    skip_without_groups
    ages = Queue.new
    work = Queue.new(Array.new(DEATHS) { |number| number })
    work.close
    threads = Array.new(4) do
      Thread.new do
        while (number = work.pop)
          preload = number.odd? ? ChildProcess::ALLOCATORS[:jemalloc] : nil
          case number % 10
          when 0..6 then killed_at_random(preload)
          when 7, 8 then assert_whole(death(OTHERS.values[number % 3], preload: preload).first)
          else ages.push(killed_at_the_limit(preload))
          end
        end
      end
    end
    threads.each(&:join)
    late = Array.new(ages.size) { ages.pop }.sort
    puts "#{DEATHS} deaths, each with a box; #{late.size} at the limit, seconds from the last sample: " \
         "median #{late[late.size / 2]}, #{late.count { |age| age > 1 }} over 1, most #{late.last}"
  end
end
