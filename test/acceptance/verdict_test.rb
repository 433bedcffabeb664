# frozen_string_literal: true

require_relative "../test_helper"

# Verdicts on running processes whose behaviour is known. They sample themselves with a clock that runs ahead: hours
# pass in a second.
class VerdictAcceptanceTest < MemscopeTest
  parallelize_me!

  # Each case's code runs every 150 s of that clock; `at` is its time in hours.
  PREPARE = <<~RUBY
    Memscope.const_get(:Native).open_history
    SAMPLER = Memscope::History::Sampler.new
    NOW = Memscope::History::Sampler.now.to_i
    KEPT = []
    def pass(steps)
      steps.times do |step|
        Array.new(1000) { "garbage" * 20 }
        GC.start if (step % 2).zero?
        yield step / 24.0
        SAMPLER.step(NOW + (step * 150))
      end
      puts Memscope.verdict.to_json
    end
  RUBY

  # From Ruby 3.3 on, more of a thread's memory is in malloc than in its stack.
  OF_THREADS = RUBY_VERSION < "3.3" ? :stacks : :native

  CASES = {
    "objects" => [:leak, :objects, "KEPT << Array.new(6000) { Object.new } << Array.new(45) { 'k' * 30_000 }"],
    "native memory" => [:leak, :native, "Leaks.leak(30_000, 80, :here)"],
    "threads" => [:leak, OF_THREADS, "2.times { Thread.new { Host.touch_stack(525_000); sleep } }; sleep 0.001"],
    "a cache that fills" =>
      [:filling, :objects, "KEPT << Array.new((180 * Math.exp(-at * 2)).ceil) { 'c' * 30_000 }"],
    "one fat request" => [:step, :objects, "KEPT << ('f' * (64 << 20)) if at == 1.5"],
    "a full heap" =>
      [:steady, nil, "(at.zero? ? 200 : 1).times { KEPT.replace([Array.new(50) { 'r' * rand(20_000) }]) }"]
  }.freeze

  # test/engine/trend/verdict_battery_test.rb judges traces of all kinds.
  IN_SHORT = ["objects", "native memory", "a cache that fills"].freeze

  # Under both allocators in rake battery:verdict; leaks in malloc itself always.
  UNDER = ENV.fetch("ALLOCATORS", "glibc").split.map(&:to_sym)

  CASES.to_a.product(ChildProcess::ALLOCATORS.to_a).each do |(name, (kind, layer, code)), (allocator, preload)|
    next unless UNDER.include?(allocator) || layer == :native

    test = define_method("test_the_verdict_on_#{name.tr(' ', '_')}_under_#{allocator}") do
      skip_under_sanitizer
      verdict = Memscope::Verdict.from_h(child_json("#{PREPARE}pass(96) { |at| #{code} }",
                                                    preload: preload, requires: %w[json memscope_test]))

      assert_equal [kind, layer], [verdict.kind, verdict.layer], verdict.to_s
      assert_operator verdict.shares[layer], :>, 0.6, verdict.sentence if layer
    end
    only_in_full(test) unless allocator == :glibc && IN_SHORT.include?(name)
  end
end
