# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/malloc_profile_ways"

# Profiles keep no method, class or object alive: as many are collected while one runs as without it. METHODS says how
# many (rake battery:methods).
class KeptAliveTest < MemscopeTest
  extend MallocProfileWays

  parallelize_me!

  WAYS = MallocProfileWays::EACH_BACKEND
  # Where no GC hook may be added, the profile of malloc forgets addresses of frames only after 16 major GCs.
  COLLECTIONS = RUBY_VERSION.match?(/\A3\.(?:1\.[0-3]|2\.[0-2])\z/) ? 20 : 3
  METHODS = Integer(ENV.fetch("METHODS", "2000"))

  # Each class is anonymous, with a method that was given to eval; the profile samples most of their frames.
  PRELUDE = <<~RUBY.freeze
    kept = lambda do
      classes, methods, objects = Array.new(3) { ObjectSpace::WeakMap.new }
      #{METHODS}.times do |number|
        one = Class.new { class_eval "def made_\#{number % 100} = ['x' * 600, Object.new]" }
        classes[one] = methods[one.instance_method("made_\#{number % 100}")] = one
        object = one.new.public_send("made_\#{number % 100}").last
        objects[object] = object
      end
      #{COLLECTIONS}.times { GC.start }
      [classes, methods, objects].map(&:size)
    end
  RUBY

  both_allocators("by_a_profile_of_objects", in_full: [:jemalloc]) do |preload|
    answer = child_json(<<~RUBY, preload: preload, requires: %w[json memscope], timeout: 600)
      #{PRELUDE}
      plain = kept.call
      Memscope::ObjectProfile.start(budget: 1)
      profiled = kept.call
      puts JSON.generate([Memscope::ObjectProfile.stop.overhead.samples_taken, plain, profiled])
    RUBY
    assert_all_collected(*answer)
  end

  each_way("by_a_profile_of_malloc") do |settings|
    answer = child_json(<<~RUBY, requires: %w[json memscope], timeout: 600, **settings)
      #{PRELUDE}
      plain = kept.call
      Memscope::MallocProfile.start(rate: 512, backend: ENV.fetch("BACKEND").to_sym)
      profiled = kept.call
      puts JSON.generate([Memscope::MallocProfile.stop.overhead.samples_taken, plain, profiled])
    RUBY
    assert_all_collected(*answer)
  end

  private

  # Before Ruby 3.2, some anonymous classes survive even without a profile.
  def assert_all_collected(samples, plain, profiled)
    assert_operator samples, :>, METHODS / 200
    profiled.zip(plain) { |with, without| assert_operator with, :<=, without + 60, "#{profiled}, #{plain} without" }
  end
end
