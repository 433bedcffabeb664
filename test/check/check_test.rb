# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/checked_in_child"
require_relative "../support/growth_blocks"

# What grows is found, with its line and its holder; what does not grow is not, whatever it fills at first.
class CheckTest < MemscopeTest
  include CheckedInChild

  parallelize_me!

  # Outside of the battery, only these run: each kind of memory, and each kind of holder.
  NULL = %i[memoization autoload_in_the_second_round string_dedup thread_local_cache cache_that_fills log_rotation
            singleton malloc_churn].freeze
  LEAKS = %i[class_level_array closure block_of_malloc].freeze
  ROUNDS = ENV["MEMSCOPE_GROWTH_ROUNDS"]&.then { |rounds| Integer(rounds) }

  # Prints every block that grows, and how many rounds were counted in all.
  HEALTHY = <<~RUBY
    counted = 0
    failed = []
    seconds = []
    begin
      BLOCKS.each do |name, block|
        since = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        check = Memscope::Check.run(&block)
        seconds << Process.clock_gettime(Process::CLOCK_MONOTONIC) - since
        counted += check.total_iterations / check.iterations
        failed << [name, check.to_s] if check.grows? || %i[steady step].none?(check.verdict)
      end
    end while counted < Integer(ENV.fetch("ROUNDS", "0"))
    puts JSON.generate([failed, counted, seconds.size, seconds.sort[seconds.size / 2]])
  RUBY

  both_allocators "what leaves nothing behind", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    blocks = ROUNDS ? GrowthBlocks::NULL : GrowthBlocks::NULL.slice(*NULL)
    failed, rounds, checks, seconds =
      ChildProcess.run(GrowthBlocks.script(blocks) + HEALTHY,
                       preload: preload, requires: REQUIRES, gems: true, env: { "ROUNDS" => ROUNDS.to_i.to_s },
                       timeout: ROUNDS ? 10 * ROUNDS : ChildProcess::PATIENCE).json

    assert_empty failed
    assert_operator rounds, :>=, 3 * blocks.size
    puts "#{preload || 'glibc'}: #{checks} checks, #{rounds} rounds, median #{seconds.round(2)} s" if ROUNDS
  end

  FOUND = <<~RUBY
    puts JSON.generate(BLOCKS.to_h { |name, block|
      check = Memscope::Check.run(&block)
      [name, [block.source_location, check.to_h, check.to_s]]
    })
  RUBY

  both_allocators "what leaks" do |preload|
    skip_under_sanitizer
    chosen = preload ? %i[block_of_malloc] : LEAKS
    leaks = ROUNDS ? GrowthBlocks::LEAKS : GrowthBlocks::LEAKS.slice(*chosen)
    found = ChildProcess.run(GrowthBlocks.script(leaks.transform_values(&:source)) + FOUND,
                             preload: preload, requires: REQUIRES, gems: true).json

    leaks.each do |name, leak|
      location, hash, text = found.fetch(name.name)

      assert_leak(leak, location, Memscope::Check.from_h(hash), text)
    end
  end

  def assert_leak(leak, location, check, text)
    grown = check.grown.find { |one| one.name == leak.name && one.layer == (leak.name ? :objects : :malloc) }

    refute_nil grown, text
    assert_equal [:leak, leak.per_iteration], [check.verdict, grown.per_iteration], text
    assert_match leak.held_by, grown.held_by&.join(" → ").to_s, text if leak.held_by

    assert_equal location, [grown.places.first.path, grown.places.first.lineno], text
    assert_match(/leaks_take_block/, grown.places.first.native) unless leak.name

    assert_equal 1000, check.warmup_iterations
    assert_includes text, "use warmup: 15000 to tell"
  end

  # The counts of a round are those that were planted.
  def test_growth_is_counted_exactly
    check = ran("KEPT = []", "{ 3.times { KEPT << Order.new } }", setup: "class Order; end")
    order = check.grown.find { |one| one.name == "Order" }

    assert_equal [300] * 5, order.growth
    assert_equal 600, order.places.first.count
    assert_equal({ "verdict" => "leak", "ran_in" => "child", "iterations" => 100, "runs" => 5, "max" => 0,
                   "total_iterations" => 1500 },
                 JSON.parse(check.to_json).slice("verdict", "ran_in", "iterations", "runs", "max", "total_iterations"))
    assert_equal([300] * 5, check.points.last(6).each_cons(2).map { |one, later| later.objects - one.objects })
    assert_equal check, Memscope::Check.from_json(check.to_json)
    assert_predicate check.to_s(unicode: false), :ascii_only?
  end

  # Its first ancestor is not the class itself; and it redefines what would name it.
  def test_a_class_with_a_prepended_module
    setup = "module Counted; end; class Order; prepend Counted; def self.ancestors(one) = [one]; end"
    check = ran("KEPT = []", "{ KEPT << Order.new }", QUICK, setup: setup)

    assert_equal ["Order"], check.grown.map(&:name)
    assert_equal 40, check.grown.first.places.first.count
  end

  def test_what_is_allowed_does_not_fail
    plan = { [] => true, "max: 3" => false, "max: 2" => true, "ignore: Order" => false, "ignore: 'Order'" => false,
             "ignore: /lines.rb/" => false, "ignore: [String, :malloc]" => true, "ignore: /elsewhere/" => true }
    checks = plan.keys.map do |options|
      "Memscope::Check.run(#{[QUICK, *options].join(', ')}) { 3.times { KEPT << Order.new } }.grows?"
    end
    found = child_json(<<~RUBY, requires: REQUIRES)
      class Order; end
      KEPT = []
      puts JSON.generate(eval(#{"[#{checks.join(', ')}]".inspect}, TOPLEVEL_BINDING, "lines.rb"))
    RUBY

    assert_equal plan.values, found
  end

  def test_a_garbage_collection_that_a_test_has_stubbed
    check = ran("def GC.start(**) = nil", "{ Array.new(3) { Object.new } }")

    refute_predicate check, :grows?, check.to_s
  end

  def test_memory_that_rose_once_is_a_step
    check = ran("n = 0", "{ (n += 1) == 150 && (KEPT = Array.new(2_000) { Object.new }) }")

    assert_equal [:step, false], [check.verdict, check.grows?]
    assert_match(/Step: objects rose in 400 iterations, in a forked child, but not in\s+each/, check.to_s)
  end

  # The block of one check would count in the other.
  def test_checks_in_the_process_wait_for_each_other
    grows, runs = child_json(<<~RUBY, requires: REQUIRES)
      KEPT = []
      ran = []
      blocks = { leak: -> { KEPT << Object.new }, healthy: -> {} }
      threads = blocks.map do |name, block|
        Thread.new do
          Memscope::Check.run(in: :process, #{QUICK}) { ran << name; Thread.pass; block.call }.grows?
        end
      end
      puts JSON.generate([threads.map(&:value), ran.chunk_while { |one, other| one == other }.count])
    RUBY

    assert_equal [[true, false], 2], [grows, runs]
  end
end
