# frozen_string_literal: true

# A malloc profile at a low rate, for ENV["SECONDS"], during everything that can happen while malloc is called. The
# backend is ENV["BACKEND"]: imports, jemalloc, or none, which shows whether Ruby itself survives. Prints the actions,
# and the errors that did not end the process.

require "json"
require "openssl"
require "zlib"
require "memscope_test"

module ProfileStress
  SECONDS = Integer(ENV.fetch("SECONDS"))
  BACKEND = ENV.fetch("BACKEND").to_sym
  RATES = [9, 10, 11, 12].map { |log| 1 << log }.freeze
  # gcc 12's ASan does not acquire its allocator's locks around a fork.
  FORKS = !ENV["MEMSCOPE_SANITIZER"]
  # With Ractors, forks and compaction together, Ruby 3.1 crashes, and 3.3.8 hangs with all its threads waiting for the
  # GVL, with or without a profile.
  RACTORS = RUBY_VERSION >= "3.4"
  # Ruby 3.1.2 crashes if it compacts while other threads run, with or without a profile.
  COMPACTS = Memscope::Purge.missing[:compact].nil?
  LIVING = 20_000
  FAULTS = Queue.new
  DONE = Hash.new(0)
  PROFILE = Memscope.const_get(:Native)

  # What the workers do, by turns.
  WORK = [
    -> { Array.new(300) { |index| "s#{index}" * rand(50) }.join(",").split(",") },
    -> { JSON.parse(JSON.generate(Array.new(30) { |index| { "k#{index}" => ["v" * index, index, { x: index }] } })) },
    -> { Array.new(300) { |index| ["key#{rand(1000)}", [index] * 3] }.to_h.delete_if { |_, value| value[0].odd? } },
    -> { Zlib.inflate(Zlib.deflate("hello world" * 200)) },
    -> { OpenSSL::Digest::SHA256.hexdigest("a" * 1000) },
    -> { Leaks.churn(300, :without_gvl) },
    -> { Leaks.refused },
    -> { evaluate },
    -> { fibers },
    -> { Array.new(20) { Leaks.churning_object } },
    -> { Class.new { define_method(:made) { |size| "c" * size } }.new.made(2500) },
    -> { catch(:done) { 10.times { |index| index == 7 ? throw(:done) : "t" * 1000 } } },
    -> { raise ArgumentError, "x" * 3000 },
    -> { ("ab" * 100).match?(/(a+)(b+)/) && "héllo".unicode_normalize(:nfd).encode("UTF-16LE") },
    -> { Memscope.tag("tag #{rand(20)}") { "g" * rand(4000) } },
    -> { Dir.glob("/etc/*").map { |path| File.basename(path) } }
  ].freeze

  module_function

  def time_left? = Process.clock_gettime(Process::CLOCK_MONOTONIC) < @finish

  # New code that is then freed: the profile's names of it must stay.
  def evaluate
    lines = "text << 'q' * 900\n" * rand(1..10)
    RubyVM::InstructionSequence.compile("text = +'z' * rand(3000)\n#{lines}", "made_#{rand(1 << 30)}.rb").eval
    Class.new { class_eval { def made(size) = "m" * size } }.new.made(2000)
  end

  def fibers
    made = Array.new(5) { Fiber.new { |given| 5.times { given = Fiber.yield("f" * rand(4000)) } && given } }
    5.times { made.each(&:resume) }
    [1, 2, 3].each.next
  end

  def overflow(depth = 0) = [depth].each { |at| ("o" * rand(800)) && overflow(at + 1) }

  def work
    while time_left?
      begin
        WORK.sample.call
      rescue ArgumentError
        nil
      end
    end
  end

  # Threads that end, are killed, raise, and allocate after Ruby has released them.
  def come_and_go
    while time_left?
      ending = Array.new(4) { Thread.new { Leaks.churn_at_thread_end && Array.new(50) { "q" * rand(2000) } } }
      killed = Thread.new { loop { "k" * rand(3000) } }
      raising = Thread.new do
        Thread.current.report_on_exception = false
        Leaks.churn_at_thread_end
        raise "x" * 2000
      end
      Thread.pass
      killed.kill
      [*ending, killed].each(&:join)
      raising.join rescue nil # rubocop:disable Style/RescueModifier
      Leaks.churn(1000, :pthread)
      Leaks.churn_behind(20)
      sleep 0.005
    end
  end

  def overflow_stacks
    while time_left?
      begin
        Thread.new { (Thread.current.report_on_exception = false) || overflow }.join
      rescue SystemStackError
        DONE[:overflow] += 1
      end
      sleep 0.3
    end
  end

  # Blocks that live on cause false positives in the address filter (sampling/sample_table.h).
  def start
    Memscope::MallocProfile.start(rate: RATES.sample, backend: BACKEND) unless BACKEND == :none
    Leaks.leak(2048, LIVING, :here)
  end

  def read
    return if BACKEND == :none

    body = PROFILE.malloc_profile(nil)
    return FAULTS << "could not be read: #{body}" unless body.is_a?(Hash)

    known = body[:frames].size
    body[:stacks].each do |stack|
      FAULTS << "a frame that is none: #{stack}" unless stack[:frames].all? { |frame| frame.between?(0, known - 1) }
    end
    DONE[:samples] = [DONE[:samples], body[:overhead][:samples_taken]].max
  end

  def read_beside
    while time_left?
      read
      sleep 0.01
    end
  end

  def restart
    PROFILE.stop_profile
    sleep 0.002 if rand(2).zero?
    Leaks.free(LIVING, :here)
    start
  end

  # Runs in a forked child, so that no other thread waits while this one collects garbage at each allocation. The
  # readings before it have named all frames: each name is some more allocations.
  def stress_gc
    GC.stress = true
    3.times { ["st" * rand(2000), { a: [1, 2] }].to_s }
    evaluate
  ensure
    GC.stress = false
  end

  def compact_by_itself
    GC.auto_compact = true
    5.times { evaluate && GC.start }
  ensure
    GC.auto_compact = false
  end

  # The child continues the profile, compacts, reads, starts another profile, and ends normally or by exit!.
  def child
    100.times { "ch" * rand(2000) }
    GC.start
    if COMPACTS
      compact
      compact_by_itself
    end
    read
    Thread.new { evaluate && ("t" * 3000) }.join
    restart
    20.times { evaluate }
    read
    stress_gc if rand(4).zero?
    read
    exit!(FAULTS.empty? ? 0 : 1) if rand(2).zero?
    exit(FAULTS.empty? ? 0 : 1)
  end

  def fork_one
    return unless FORKS

    pid = fork { child }
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 240 # with GC.stress, on a busy machine
    until Process.wait(pid, Process::WNOHANG)
      raise "a forked child hangs: #{pid}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

      sleep 0.002
    end
    FAULTS << "a forked child: #{$CHILD_STATUS}" unless $CHILD_STATUS.success?
  end

  def verify
    GC.verify_compaction_references(toward: :empty)
  end

  def ractors
    Array.new(3) { Ractor.new { Array.new(200) { |index| "r#{index}" * rand(100) }.join.size } }
         .each { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take } # take until 4.0
  end

  def generation = PROFILE.next_generation

  def gc = GC.start

  def compact = GC.compact

  def auto_compact = GC.auto_compact = !GC.auto_compact

  def run
    require "English"
    start
    read
    @finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS # the start takes seconds under a sanitizer
    Signal.trap(:USR1) { 20.times { "sig" * rand(1000) } }
    Leaks.churn_on_alarm(300)
    Leaks.churn_at_exit
    Leaks.churn_around_forks
    at_exit { 300.times { "x" * rand(5000) } }
    jobs = Array.new(4) { Thread.new { work } }
    jobs += %i[come_and_go overflow_stacks read_beside].map { |name| Thread.new { public_send(name) } }
    jobs << Thread.new { Process.kill(:USR1, Process.pid) && sleep(0.01) while time_left? }
    perform while time_left?
    jobs.each(&:join)
    GC.auto_compact = false if COMPACTS
    DONE[:handlers] = Leaks.churn_on_alarm(0)
    DONE.merge(faults: Array.new(FAULTS.size) { FAULTS.pop }.uniq)
  end

  ACTIONS = [:gc, :read, :restart, :fork_one, :generation, *(%i[compact auto_compact verify] if COMPACTS),
             *(:ractors if RACTORS)].freeze

  def perform
    action = ACTIONS.sample
    public_send(action)
    DONE[action] += 1
    sleep 0.005
  end
end

puts JSON.generate(ProfileStress.run)
