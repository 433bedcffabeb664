# frozen_string_literal: true

# Creates Ractors, which allocate, while allocations are hooked: `ractors.rb WAY SECONDS`. WAYS has memscope's calls in
# each round. In a control, memscope is not even loaded. Prints how many times Ractors were created.

way, seconds = ARGV
FINISH = Process.clock_gettime(Process::CLOCK_MONOTONIC) + Float(seconds)
Warning[:experimental] = false
require "memscope" unless way.start_with?("control")

module RactorWorkload
  @times = 0

  module_function

  def times = @times

  def time_left? = Process.clock_gettime(Process::CLOCK_MONOTONIC) < FINISH

  def work(count)
    kept = {}
    count.times do |index|
      kept[index] = [Object.new, index.to_s, { index => 1 }]
      kept.delete(index - 100)
    end
  end

  def ractors
    @times += 1
    others = Array.new(3) do
      Ractor.new do
        30_000.times.each_with_object([]) { |index, list| list.size > 100 ? list.clear : list << "x#{index}" }.size
      end
    end
    work(3000)
    yield if block_given?
    others.each { |one| one.respond_to?(:value) ? one.value : one.take } # take until 4.0
  end

  # A Ractor still counts for a moment after its value can be taken.
  def alone
    sleep 0.001 while Ractor.count > 1
  end

  def profile(budget)
    alone
    Memscope::ObjectProfile.start(budget: budget)
    work(300)
    ractors { check(Memscope::ObjectProfile.snapshot) }
    GC.start
    check(Memscope::ObjectProfile.stop)
  end

  def check(profile)
    ended = profile.reasons[:live_objects].to_s.include?("a Ractor was created")
    raise "not ended by a Ractor: #{profile.reasons.to_h}" unless ended
    raise "#{profile.live_objects} objects" if profile.live_objects.negative?
  end

  # The only round: threads allocate beside the Ractors, and start and stop profiles whenever they can.
  def storm
    control_storm(-> { rival }) { read_any }
    Memscope::ObjectProfile.halt
  end

  def control_storm(rival = -> { work(rand(500)) }, &)
    rivals = Array.new(2) { Thread.new { rival.call while time_left? } }
    ractors(&) while time_left?
    rivals.each(&:join)
  end

  def rival
    Memscope::ObjectProfile.start(budget: [0.001, 0.01, 0.2, 1].sample)
    work(rand(500))
    read_any
    GC.start if rand < 0.3
    Memscope::ObjectProfile.stop
  rescue Memscope::Unavailable
    work(100)
  end

  def read_any
    Memscope::ObjectProfile.snapshot
  rescue Memscope::Unavailable
    nil
  end

  def measure
    measurement = Memscope.measure { ractors }
    raise "counted by class: #{measurement.reasons.to_h}" if measurement.classes
  end

  # memscope does not see these Ractors coming.
  def unnoticed
    alone
    Memscope::ObjectProfile.start(budget: [0.01, 1].sample)
    work(3000)
    TracePoint.new(:call) { ractors { read_any } }.enable(target: method(:traced)) { traced }
    work(3000)
    read_any
    Memscope::ObjectProfile.halt
  end

  def traced = nil

  def malloc
    Memscope::MallocProfile.start(backend: :imports, rate: 1024)
    ractors { Memscope::MallocProfile.snapshot }
    Memscope::MallocProfile.stop
  end

  WAYS = {
    "control" => -> { ractors }, "control_storm" => -> { control_storm }, "storm" => -> { storm },
    "profile" => -> { profile(1) }, "default" => -> { profile(0.01) }, "measure" => -> { measure },
    "unnoticed" => -> { unnoticed }, "malloc" => -> { malloc }
  }.freeze
end

loop do
  RactorWorkload::WAYS.fetch(way).call
  break unless RactorWorkload.time_left?
end
puts RactorWorkload.times
