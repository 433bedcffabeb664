# frozen_string_literal: true

# `state.rb STATE`: a process whose main thread is in this state, which does not change by itself, except that a timed
# one is over after a second. Prints "ready", with a Ractor once that runs, and later "woke" if a call that should block
# returns.
#
# `state.rb --list`: the names of the states.

require "io/wait"
require "socket"
require "tempfile"
require "zlib"

# Blocks in IO.select.
class SelectingScheduler
  def initialize
    @waiting = []
    @reader, @writer = IO.pipe
  end

  def run
    until @waiting.empty?
      @reader.wait_readable([@waiting.map(&:first).min - now, 0].max)
      due, @waiting = @waiting.partition { |time, _fiber| time <= now }
      due.each { |pair| pair.last.resume }
    end
  end
  alias close run

  def kernel_sleep(seconds = 1_000_000)
    @waiting << [now + seconds, Fiber.current]
    Fiber.yield
  end

  def block(_blocker, timeout = nil) = kernel_sleep(timeout || 1_000_000)

  def unblock(_blocker, _fiber) = nil

  def io_wait(_io, events, _timeout) = events

  def fiber(&) = Fiber.new(blocking: false, &).tap(&:resume)

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

module State
  module_function

  def allocate = Array.new(100) { "a" * 50 }

  def another = Thread.new { sleep }

  def deep(levels) = levels.zero? ? loop { allocate } : deep(levels - 1)

  def locked_by_another
    lock = Mutex.new
    locked = Queue.new
    Thread.new { lock.synchronize { sleep((locked << true) && 1_000_000) } }
    locked.pop
    lock
  end

  def timed
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    yield
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
    puts seconds < 1 ? "woke" : format("in time, after %.4f s", seconds)
    sleep
  end
end

WAITS = {
  sleep: -> { sleep },
  join: -> { State.another.join },
  queue: -> { State.another && Queue.new.pop },
  select: -> { (PIPE = IO.pipe) && IO.select([PIPE.first]) }, # rubocop:disable Lint/IncompatibleIoSelectWithFiberScheduler
  accept: -> { TCPServer.new("127.0.0.1", 0).accept },
  read: -> { (PIPE = IO.pipe).first.read },
  wait: -> { Process.wait(spawn("sleep", "1000")) },
  mutex: -> { State.locked_by_another.lock },
  condition: -> { State.another && Mutex.new.then { |lock| lock.synchronize { ConditionVariable.new.wait(lock) } } },
  gets: -> { $stdin.gets },
  flock: lambda {
    Tempfile.create("lock") do |file|
      File.open(file.path) { |other| other.flock(File::LOCK_EX) && file.flock(File::LOCK_EX) }
    end
  },
  trapped: -> { trap("CHLD") { puts "woke" } && trap("INT") { puts "woke" } && sleep },
  fiber_scheduler: lambda do
    Fiber.set_scheduler(SelectingScheduler.new)
    3.times { Fiber.schedule { sleep } }
    Fiber.scheduler.run
  end
}.freeze

TIMED = {
  sleep_timed: -> { State.timed { sleep 1 } },
  select_timed: -> { (PIPE = IO.pipe) && State.timed { PIPE.first.wait_readable(1) } },
  join_timed: -> { State.another.then { |thread| State.timed { thread.join(1) } } },
  condition_timed: lambda do
    lock = Mutex.new
    lock.synchronize { State.timed { ConditionVariable.new.wait(lock, 1) } }
  end
}.freeze

WORKS = {
  zlib: -> { (TEXT = Random.bytes(1 << 20) * 40) && loop { Zlib::Deflate.deflate(TEXT, 9) } },
  regexp: -> { loop { ("a" * 28) =~ /\A(?:a?){28}a{28}\z/ } }, # long with the GVL
  collection: -> { (OBJECTS = Array.new(500_000) { "x" * 30 }) && loop { GC.start } },
  ten_busy_threads: -> { 10.times { Thread.new { loop { State.allocate } } } && sleep },
  busy: -> { loop { State.allocate } },
  deep: -> { State.deep(5000) },
  tight: -> { (number = 0) && loop { number += 1 while number < 1 << 60 } },
  ractor: -> { Ractor.new { $stdout.syswrite("ready\n") && loop { Array.new(100) { "a" * 50 } } } && sleep }
}.freeze

# Not in the list.
OTHERS = {
  threads: -> { 500.times { State.another } && sleep },
  no_fork: -> { Host.deny_fork!(nil) || sleep },
  no_more_processes: -> { Process.setrlimit(Process::RLIMIT_NPROC, 0) || sleep },
  strict: -> { Host.read_in_strict_mode },
  power: -> { 3.pow(1 << 2_000_000, (10**5000) + 1) }, # minutes in C with the GVL
  filtered: -> { Host.deny_pagemap_scan! || sleep },
  other_user: -> { Process::Sys.setuid(65_534) || sleep }, # which also forbids that user to trace it
  signal_stack: -> { loop { Host.spin_on_a_signal_stack } },
  vfork: -> { Host.vfork(4) || puts("woke") || sleep }
}.freeze

if ARGV == ["--list"]
  puts([WAITS, TIMED, WORKS].map { |states| states.keys.join(" ") })
else
  $stdout.sync = true
  Warning[:experimental] = false
  state = ARGV.shift.to_sym
  puts "ready" unless state == :ractor
  { **WAITS, **TIMED, **WORKS, **OTHERS }.fetch(state).call
  puts "woke"
  sleep
end
