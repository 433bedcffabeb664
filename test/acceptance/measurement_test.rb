# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"

# What a person does with a measurement: finds the line that retains, sees what a C extension keeps, and puts numbers
# into a pull request that are the same on the next run.
class MeasurementAcceptanceTest < MemscopeTest
  parallelize_me!

  LIBRARY = <<~RUBY
    class Order
      KEPT = []
      def initialize(number) = @text = "order \#{number} " * 20
      def self.place(number)
        order = new(number)
        KEPT << order if number % 10 == 3
        order
      end
    end
  RUBY

  SHOP = <<~RUBY
    require "json"
    require_relative "order"
    measurement = Array.new(2) do # the first call also fills Ruby's caches
      Order::KEPT.clear
      Memscope.measure { 200.times { |number| Order.place(number) } && nil }
    end.last
    puts measurement
    puts JSON.generate(measurement.to_h.slice(:allocated_objects, :allocated_bytes, :retained_objects, :retained_bytes,
                                              :lines))
  RUBY

  def test_the_line_that_leaks_is_first_and_the_numbers_repeat
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "order.rb"), LIBRARY)
      File.write(File.join(directory, "shop.rb"), SHOP)
      runs = Array.new(2) do
        ChildProcess.run_command(*ChildProcess.ruby, "-rmemscope", File.join(directory, "shop.rb"))
      end
      found = runs.first.json

      assert_equal found, runs.last.json
      assert_equal 40, found["retained_objects"]
      assert_equal "#{directory}/order.rb:3", found["lines"].first["name"]
      assert_match(%r{/order\.rb:3$}, runs.first.out)
    end
  end

  # The contexts of zlib are malloc memory of a C library. The allocator's own statistics are a second source.
  both_allocators("malloc memory of a C extension that stays") do |preload|
    skip_under_sanitizer
    found = child_json(<<~RUBY, preload: preload, requires: %w[json zlib])
      def in_use
        snapshot = Memscope.snapshot(malloc: true)
        snapshot.jemalloc ? snapshot.jemalloc[:allocated_bytes] : snapshot.glibc.values_at(:uordblks, :hblkhd).sum
      end
      make = -> { 20.times.map { Zlib::Deflate.new.tap { |context| context << "x" } } }
      make.call
      before = nil
      measurement = Memscope.measure { (before = in_use) && make.call }
      puts JSON.generate([measurement.malloc_retained_bytes, in_use - before, measurement.retained_objects >= 20])
    RUBY

    assert_in_delta found[1], found[0], 0.1 * found[1] # jemalloc's number includes what threads keep cached
    assert_operator found[0], :>, 20 * 200_000
    assert found[2]
  end
end
