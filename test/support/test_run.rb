# frozen_string_literal: true

require "etc"
require "json" # what each file needs is loaded once, but for memscope: it behaves differently in a forked child
require "minitest"
require "tempfile"
require "tmpdir"

# Runs test files, each in a process that is forked from this one, two at a time on each processor: the tests of many
# files wait half of the time. Prints a line for each file as it ends, with the CPU time of its
# processes. Then why tests were skipped, and each failure.
class TestRun
  # What became of a test: :passed, :skipped or :failed. The text is the reason, or the failure.
  Outcome = Struct.new(:name, :seconds, :result, :text)

  # The process of a file. It prints to log, and its Recorder writes to record.
  Running = Struct.new(:file, :started, :directory) do
    def log = "#{directory}/log"
    def record = "#{directory}/record"
  end

  # Minitest's only reporter in such a process: writes the name of each test as it begins, its Outcome when it ends, and
  # the Process::Tms after all of them, so that a crash shows, and in which test.
  class Recorder < Minitest::AbstractReporter
    RESULTS = { "." => :passed, "S" => :skipped }.freeze
    private_constant :RESULTS

    def initialize(file)
      super()
      @file = file
      @passed = true
    end

    def prerecord(test_class, name) = put("#{test_class}##{name}")

    def record(test)
      @passed &&= test.passed? || test.skipped?
      put(Outcome.new("#{test.klass}##{test.name}", test.time, RESULTS.fetch(test.result_code, :failed),
                      test.skipped? ? test.failure.message : test.to_s))
    end

    def report = put(Process.times)

    def passed? = @passed

    private

    def put(what)
      synchronize do
        Marshal.dump(what, @file)
        @file.flush
      end
    end
  end

  AT_ONCE = Integer(ENV.fetch("MEMSCOPE_TEST_PROCESSES", Etc.nprocessors * 2))
  PATIENCE = 900 # seconds after which a file counts as hung

  # @param files [Array<String>] paths, in the order in which they start
  # @param options [Array<String>] Minitest's
  def initialize(files, options)
    @files = files
    @options = options
    @running = {} # by pid
    @outcomes = {} # by file
  end

  # @return [Boolean] whether all tests passed, and there was one
  def run
    started = now
    Dir.mktmpdir("memscope-tests") do |directory|
      @files.each.with_index do |file, index|
        finish_one while @running.size >= AT_ONCE
        start(file, "#{directory}/#{index}")
      end
      finish_one until @running.empty?
    end
    conclude(now - started)
    failures.empty? && @outcomes.values.any?(&:any?)
  ensure
    @running.each_key { |pid| Process.kill(:KILL, pid) }
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # Minitest runs when the process exits: without plugins, since those of all installed Minitests would be loaded.
  def start(file, directory)
    Dir.mkdir(directory)
    running = Running.new(file, now, directory)
    $stdout.flush
    pid = fork do
      $stdin.reopen(File::NULL)
      [$stdout, $stderr].each { |stream| stream.reopen(running.log, "a") }
      ARGV.replace([*@options, "--no-plugins"])
      record = File.open(running.record, "wb") # rubocop:disable Style/FileOpen -- until the process ends
      Minitest.extensions << "recorder"
      Minitest.define_singleton_method(:plugin_recorder_init) { |_| reporter.reporters.replace([Recorder.new(record)]) }
      require File.expand_path(file)
    end
    @running[pid] = running
  end

  def finish_one
    until (pid, status = Process.wait2(-1, Process::WNOHANG))
      @running.each { |hung, running| Process.kill(:KILL, hung) if now - running.started > PATIENCE }
      sleep 0.02
    end
    show(@running.delete(pid), status)
  end

  def show(running, status)
    records = File.exist?(running.record) ? records_in(running.record) : []
    outcomes = @outcomes[running.file] = outcomes_of(running, status, records)
    cpu = records.grep(Process::Tms).sum(&:sum)
    puts format("[%<done>3d/%<files>d] %<seconds>6.1f s, CPU %<cpu>5.1f s  %<file>s: %<counts>s",
                done: @outcomes.size, files: @files.size, seconds: now - running.started, cpu: cpu, file: running.file,
                counts: counts(outcomes))
    outcomes.each { |outcome| puts "          FAILED: #{outcome.name}" if outcome.result == :failed }
  end

  # A process that did not end normally is a failure too, with its output.
  def outcomes_of(running, status, records)
    outcomes = records.grep(Outcome)
    ended = records.last.is_a?(Process::Tms)
    return outcomes if ended && (status.success? || outcomes.any? { |one| one.result == :failed })

    begun = records.grep(String) - outcomes.map(&:name)
    text = "#{running.file}: #{status}; in #{begun.join(', ')}\n#{without_tables(File.read(running.log).scrub)}"
    outcomes << Outcome.new("the process of #{running.file}", now - running.started, :failed, text)
  end

  def records_in(path)
    File.open(path, "rb") do |file|
      records = []
      records << Marshal.load(file) until file.eof? # rubocop:disable Security/MarshalLoad -- own records
      records
    rescue ArgumentError, TypeError # killed while it wrote
      records
    end
  end

  # Of a crash of Ruby: without registers, and without the thousands of features and mappings.
  def without_tables(log)
    log.sub(/^-- Machine register context.*?(?=^-- )/m, "").sub(/^-- Other runtime information.*/m, "")
  end

  def counts(outcomes)
    tally = { passed: 0, failed: 0 }.merge(outcomes.map(&:result).tally)
    tally.map { |result, count| "#{count} #{result}" }.join(", ")
  end

  def failures = all.select { |outcome| outcome.result == :failed }

  def all = @outcomes.values.flatten(1)

  def conclude(seconds)
    all.max_by(Integer(ENV.fetch("MEMSCOPE_SLOWEST", "0")), &:seconds).each do |outcome|
      puts format("%<seconds>8.2f s  %<name>s", seconds: outcome.seconds, name: outcome.name)
    end
    all.select { |outcome| outcome.result == :skipped }.map(&:text).tally.sort_by(&:last).each do |reason, count|
      puts "#{count} skipped: #{reason}"
    end
    failures.each { |failure| puts "", failure.text }
    puts "", "#{seconds.round} s, #{AT_ONCE} files at a time, #{@options.join(' ')}", counts(all)
  end
end
