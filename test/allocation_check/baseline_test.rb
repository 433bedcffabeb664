# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"

# Numbers of an earlier run are what a later one may not exceed.
class AllocationCheckBaselineTest < MemscopeTest
  parallelize_me!

  # Prints what the run exceeds, or why that is unknown.
  SCRIPT = <<~RUBY
    Order = Struct.new(:number)
    result = begin
      Memscope::AllocationCheck.run({ baseline: ARGV[0] }) { Integer(ARGV[1]).times { Order.new } }.exceeded
    rescue Memscope::AllocationCheck::Unavailable => e
      e.message
    end
    puts JSON.generate(result)
  RUBY

  def check(directory, name, objects, env = {})
    script = "ARGV.replace([#{name.inspect}, #{objects.to_s.inspect}])\nDir.chdir(#{directory.inspect})\n#{SCRIPT}"
    child_json(script, requires: %w[json], env: env)
  end

  def in_application(folder = "test")
    Dir.mktmpdir do |directory|
      Dir.mkdir(File.join(directory, folder))
      yield directory, File.join(directory, folder, "memory_baseline.json")
    end
  end

  def platform = "ruby #{RUBY_VERSION[/\d+\.\d+/]}"

  def test_what_is_recorded_may_not_be_exceeded
    in_application do |directory, path|
      assert_empty check(directory, "orders", 3, "MEMSCOPE_UPDATE" => "1")
      assert_equal({ "orders" => { platform => { "Order" => 3, "objects" => 3 } } }, JSON.parse(File.read(path)))
      assert_empty check(directory, "orders", 3)
      assert_empty check(directory, "orders", 2)
      assert_equal({ "Order" => 4, "objects" => 4 }, check(directory, "orders", 4))
    end
  end

  def test_an_update_changes_only_its_own
    in_application("spec") do |directory, path|
      others = { "other" => { platform => { "objects" => 1 } }, "orders" => { "ruby 2.7" => { "objects" => 9 } } }
      File.write(path, JSON.generate(others))
      check(directory, "orders", 1, "MEMSCOPE_UPDATE" => "1")

      assert_equal({ "orders" => { "ruby 2.7" => { "objects" => 9 }, platform => { "Order" => 1, "objects" => 1 } },
                     "other" => { platform => { "objects" => 1 } } }, JSON.parse(File.read(path)))
    end
  end

  def test_what_is_not_recorded_is_an_error
    in_application do |directory, path|
      File.write(path, JSON.generate({ "orders" => { "ruby 2.7" => { "objects" => 9 } } }))

      assert_equal "no baseline \"orders\" for #{platform} in test/memory_baseline.json: run this test once with " \
                   "MEMSCOPE_UPDATE=1, and commit the file", check(directory, "orders", 1)
      File.write(path, "{ <<<<")

      assert_match(%r{\Atest/memory_baseline\.json cannot be read: }, check(directory, "orders", 1))
    end
  end

  def test_wrong_names_are_refused
    [4, "", :orders].each do |name|
      error = assert_raises(ArgumentError) { Memscope::AllocationCheck.run({ baseline: name }) { flunk } }

      assert_match(/baseline: given #{Regexp.escape(name.inspect)}, allowed: a name/, error.message)
    end
  end
end
