# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../../action/commit"
require_relative "../../action/comparison"

# The rules, with measurements that are made up. Of real ones, see acceptance/action_test.rb.
class ActionComparisonTest < MemscopeTest
  LIMITS = { boot: 512, retained: 100, objects: 0 }.freeze
  CHECK = { verdict: :steady, iterations: 20, runs: 5, max: 0, warmup_iterations: 100, total_iterations: 200,
            ran_in: :process, points: [], grown: [], expired: [], reasons: {}, cost: Memscope::Cost.of(:T3) }.freeze
  Boot = Struct.new(:bytes)

  # A commit whose measurements are in lists: each is taken once, and the last one again and again.
  class Planted < Memscope::Commit
    def initialize(boots: [1000], requests: []) # rubocop:disable Lint/MissingSuper -- without git
      @boots = boots
      @requests = requests
      @root = "/srv/shop"
      @name = "1a2b3c4"
      @places = {}
      @texts = {}
    end

    def boot = Boot.new(@boots.size > 1 ? @boots.shift : @boots.first)
    def boot_files(boot) = { line("boot.rb", nil) => boot.bytes }
    def boot_lines = { line("boot.rb", 3) => 10 }

    # `retained` and `rounds` are by line number.
    def requests(_path)
      given = @requests.size > 1 ? @requests.shift : @requests.first
      return Requests.new(failed: given) if given.is_a?(String)

      numbers = ->(rows) { rows.to_h { |lineno, number| [line("shop.rb", lineno), number] } }
      check = Memscope::Check.capture({ **CHECK, **given.fetch(:check, {}) })
      Requests.new(round: 20, check: check, retained: numbers.call(given.fetch(:retained, {})),
                   rounds: given.fetch(:rounds, [{}]).map(&numbers), allocator: "glibc 2.36")
    end
  end

  def leak(lineno, per_iteration, name: "Order")
    place = Memscope::Check::Place.capture({ path: "/srv/shop/shop.rb", lineno: lineno, native: nil, count: 40,
                                             bytes: 1600 })
    grown = { layer: :objects, name: name, growth: [20] * 5, per_iteration: per_iteration, places: [place],
              held_by: %w[Shop::KEPT Array Order] }
    { verdict: :leak, grown: [Memscope::Check::Grown.capture(grown)] }
  end

  def found(base, head, boots: [[1000], [1000]], paths: ["/"])
    commits = [base, head].zip(boots).map { |some, boot| Planted.new(boots: boot, requests: some.dup) }
    @comparison = Memscope::Comparison.new(commits, paths, LIMITS)
    @comparison.to_markdown("config.ru").lines(chomp: true).grep(/\A- /)
  end

  def test_nothing_grew
    one = { rounds: [{ 3 => 90 }, { 3 => 110 }], retained: { 4 => 1000 }, check: leak(5, 1) }

    assert_empty found([one], [{ **one, rounds: [{ 3 => 109 }, { 3 => 400 }], retained: { 4 => 1100 } }],
                       boots: [[1000], [1500]])
    title = "<!-- memscope config.ru ruby #{RUBY_VERSION[/\d+\.\d+/]} -->\n### memscope: nothing grew\n"

    assert @comparison.to_markdown("config.ru").start_with?(title)
    assert_includes @comparison.to_markdown("config.ru"), "| GET `/` | growth per request | leak | leak |  |"
  end

  def test_a_line_that_moved
    assert_empty found([{ rounds: [{ 3 => 200 }], retained: { 3 => 5000 } }],
                       [{ rounds: [{ 4 => 200 }], retained: { 4 => 5000 } }])
  end

  # The old line falls, a new one rises.
  def test_a_line_that_was_edited
    assert_equal ["- **GET `/`** allocates 1 more object per request: `shop.rb:9` +1"],
                 found([{ rounds: [{ 3 => 60 }] }], [{ rounds: [{ 9 => 80 }] }])
  end

  # What the second measurement does not confirm.
  def test_growth_that_does_not_last
    assert_empty found([{}], [{ rounds: [{ 3 => 20 }], retained: { 4 => 900 }, check: leak(5, 1) }, {}],
                       boots: [[1000], [2000, 1500]])
  end

  def test_what_allocates_and_what_retains
    assert_equal ["- **GET `/`** retains 400 B more after 20 requests: `shop.rb:4` +400 B",
                  "- **GET `/`** allocates 2 more objects per request: `shop.rb:9` +2"],
                 found([{ rounds: [{ 3 => 60 }], retained: { 4 => 1000 } }],
                       [{ rounds: [{ 3 => 50, 9 => 50 }], retained: { 4 => 1400 } }])
  end

  # A line that is reported as a leak is not reported again as one that retains or allocates.
  def test_a_leak
    head = { check: leak(5, 2), rounds: [{ 5 => 40 }], retained: { 5 => 1600 } }

    assert_equal ["- **GET `/`, GET `/orders`** keeps +2 `Order` per request, held by `Shop::KEPT → Array → Order`: " \
                  "`shop.rb:5`"], found([{}], [head], paths: %w[/ /orders])
    assert_equal 1, found([{ check: leak(5, 1) }], [head]).size
  end

  def test_a_path_that_is_new
    assert_equal 1, found(["status 404"], [{ check: leak(5, 1), rounds: [{ 6 => 400 }] }]).size
    assert_includes @comparison.to_markdown("config.ru"), "| growth per request | status 404 | leak | **more** |"
    error = assert_raises(Memscope::Commit::Failed) { found([{}], ["status 500"]) }

    assert_equal "status 500", error.message
  end

  def test_blocks_that_grow
    points = [100, 200].map do |iterations|
      Memscope::Check::Point.capture({ iterations: iterations, objects: 10, slot_bytes: 400,
                                       malloc_bytes: 32 * iterations, rss_bytes: 4096 })
    end

    assert_equal ["- **GET `/`** keeps 32 B more of malloc per request, in blocks that grow, at no known line"],
                 found([{}], [{ check: { points: points, runs: 1 } }])
  end

  def test_a_line_of_a_gem
    commit = Planted.new

    assert_equal "rack-3.2.8/lib/rack.rb:9", commit.place(commit.line("/usr/lib/gems/rack-3.2.8/lib/rack.rb", 9))
    assert_equal "shop/gems/shop.rb:9", commit.place(commit.line("/srv/shop/shop/gems/shop.rb", 9))
  end

  # Nothing of Ruby holds the memory, so the file is named.
  def test_boot
    assert_equal ["- **boot** takes 2 KiB more: `boot.rb` +2 KiB"], found([{}], [{}], boots: [[1000], [3048]])
  end
end
