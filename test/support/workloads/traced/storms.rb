# frozen_string_literal: true

# `storms.rb [LIBRARY]`: threads whose work has a known result, in the middle of storms: of collections, of malloc
# without the GVL, of threads that begin and end, of forks, of programs that are executed and of signals. With the test
# extension at LIBRARY, also values that the processor holds in its vector registers. On SIGTERM, prints what is wrong,
# in one line that ends with the counts.

require "digest"
require "zlib"
require ARGV.first if ARGV.any?

# What texts that are evaluated from outside add to.
$evaluated = 0 # rubocop:disable Style/GlobalVars

module Storms
  PATIENCE = 60
  WORK = {
    objects: -> { Digest::MD5.hexdigest((0...500).map { |index| (index * 7919 % 1013).to_s }.join) },
    floats: -> { (1..1000).reduce(0.1) { |sum, index| ((sum * 1.5) + (1.0 / index)) % 1.0 } },
    vectors: (-> { Host.vectors_kept?(200_000) } if defined?(Host.vectors_kept?))
  }.compact.freeze
  EXPECTED = WORK.transform_values(&:call).freeze
  TEXT = Random.new(1).bytes(50_000).freeze

  @counts = Hash.new(0)
  @received = Hash.new(0)
  @wrong = []
  %w[USR1 CHLD].each { |signal| trap(signal) { @received[signal] += 1 } }

  class << self
    attr_reader :counts, :wrong

    def work(name)
      @wrong << name unless WORK[name].call == EXPECTED[name]
      @counts[name] += 1
    end

    def collect
      GC.start
      @counts[:collections] += 1
    end

    # Inflates and deflates without the GVL.
    def allocate
      @wrong << :zlib unless Zlib::Inflate.inflate(Zlib::Deflate.deflate(TEXT, 1)) == TEXT
      @counts[:deflated] += 1
    end

    def begin_threads
      sums = Array.new(5) { |number| Thread.new { Array.new(100) { "a" * 50 }.size + number } }.map(&:value)
      @wrong << :threads unless sums.sum == 510
      @counts[:threads] += 5
    end

    # Pending signals of one kind count once, so one child ends at a time. A collection in the child could free what
    # zlib was working on in another thread (seen on 3.1.2 without memscope: one child of 300 aborts).
    def begin_children
      child = fork { exit!(GC.disable || WORK[:objects].call == EXPECTED[:objects] ? 0 : 1) }
      ended(:forked) { Process.wait2(child).last.success? }
      ended(:executed) { IO.popen(%w[echo sent], &:read) == "sent\n" }
      ended(:spawned) { system("true") }
    end

    def signal
      @counts[:signals] += 1
      Process.kill(:USR1, Process.pid)
      await("USR1", @counts[:signals])
    end

    private

    def ended(name)
      @wrong << name unless yield
      @counts[:children] += 1
      await("CHLD", @counts[:children])
    end

    def await(signal, count)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
      sleep 0.001 until @received[signal] >= count || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      return if @received[signal] == count

      @wrong << "SIG#{signal} #{@received[signal]} of #{count}"
      @received[signal] = count
    end
  end
end

stop = false
trap("TERM") { stop = true }
descriptors = Dir.children("/proc/self/fd").size
storms = { collect: 0.05, allocate: 0.005, begin_threads: 0.01, begin_children: 0.01, signal: 0.001 }
storms.each { |name, pause| Thread.new { sleep(pause) && Storms.public_send(name) until stop } }
Storms::WORK.each_key { |name| Thread.new { sleep(0.001) && Storms.work(name) until stop } }
$stdout.sync = true
puts "ready"
sleep 0.01 until stop
(Thread.list - [Thread.current]).each { |thread| Storms.wrong << "a thread hangs" unless thread.join(Storms::PATIENCE) }
left = Dir.children("/proc/self/fd").size
Storms.wrong << "#{left} descriptors, #{descriptors} before" unless left == descriptors
begin
  Storms.wrong << "child #{Process.wait(-1)}"
rescue Errno::ECHILD
  nil # as it should be
end
counts = Storms.counts.merge(evaluated: $evaluated) # rubocop:disable Style/GlobalVars
puts "#{Storms.wrong.tally.to_a.join(' ')}; #{counts.to_a.join(' ')}"
exit!(0)
