# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/required_programs"

# What a program that is started to be measured reports when it ends.
class ProgramRequiresTest < MemscopeTest
  include RequiredPrograms

  parallelize_me!

  both_allocators("costs sum to the rows") do |preload|
    found = reading("require 'json'; require 'heavy'; Light::Late", preload: preload)
    heavy, light = %w[heavy light].map { |name| gem(found, name) }

    assert_equal found.objects_bytes, found.nodes.sum(&:objects_bytes) + found.other_objects_bytes
    assert_equal found.malloc_bytes, found.nodes.sum(&:malloc_bytes) + found.other_malloc_bytes
    assert_equal found.mapped_bytes, found.nodes.sum(&:mapped_bytes) + found.other_mapped_bytes
    assert_operator found.other_objects_bytes.abs, :<, found.objects_bytes / 10
    assert_operator found.other_malloc_bytes.abs, :<, found.malloc_bytes / 5
    assert_in_delta PlantedGems::HEAVY_BYTES, heavy.bytes, PlantedGems::HEAVY_BYTES / 100
    assert_in_delta 800_000, light.bytes, 100_000
    assert_equal [["heavy"], 1, 2], [light.required_by, light.lazy_files, light.files]
  end

  # memscope records some objects for each file. Apart from these, a file costs its path and what is made of it, one or
  # two slots. Since Ruby 3.3, the list of the costs, which belongs to no file, needs two more. The arguments are those
  # at the start.
  def test_memscope_and_the_arguments_leave_no_trace
    FileUtils.mkdir_p(path("empty"))
    500.times { |number| File.write(path("empty/e#{number}.rb"), "") }
    ran = launch("requires", "--json", "--", *RUBY, "-I", path("empty"), "-e",
                 "ARGV.clear; 500.times { |n| require %(e\#{n}) }", "runner", "")
    found = Memscope::Requires.from_json(ran.err.lines.last)

    assert_equal '-e runner ""', found.program
    assert_operator found.other_objects_bytes, :<,
                    (500 * (RUBY_VERSION < "3.3" ? 2 : 4) * PlantedGems::SLOT_BYTES) + PAGES
  end

  # As in a bundle, when the memscope command is that of a gem outside of the bundle.
  def test_a_program_with_another_copy_of_memscope
    ChildProcess::LOAD_PATH.each { |place| FileUtils.cp_r("#{place}/.", path("copy")) }
    ran = launch("requires", "--json", "--", *RUBY, "-I", path("copy"), "-e",
                 'require "memscope"; puts Memscope.rss.positive?')

    assert_exit 0, ran, out: "true\n", err: /\A\{.*\}\n\z/
  end

  def test_threads_that_allocate_meanwhile
    found = reading("Thread.new { loop { Array.new(500) { 'x' * 100 } } }; sleep 0.2; require 'heavy'")

    assert_in_delta PlantedGems::HEAVY_BYTES, gem(found, "heavy").bytes, PlantedGems::HEAVY_BYTES / 20
    assert_operator found.other_objects_bytes + found.other_malloc_bytes, :>, -PlantedGems::HEAVY_BYTES
  end

  # Ruby loads them before RUBYOPT's, so before memscope. The arguments are the program's own.
  def test_files_of_the_option_r_are_mentioned
    why = lambda do |*words|
      ran = launch("requires", "--json", "--", *RUBY, *@load_path, *words)
      Memscope::Requires.from_json(ran.err.lines.last).reasons[:gems]
    end

    [%w[-rlight -e 1], %w[-wrlight -e 1], ["-r", "light", "-e", "1", ""]].each do |words|
      assert_match(/the command's -r option names are not measured/, why[*words], words)
    end
    [%w[-W:no-deprecated -e 1 -- -rlight], ["-e", "require 'light'", "a", "-r", ""]].each do |words|
      assert_nil why[*words], words
    end
  end

  def test_a_compaction_is_reported
    skip_without_compaction

    assert_match(/a compaction moved objects/, reading("GC.compact").reasons[:objects_bytes])
    assert_nil reading("1").reasons[:objects_bytes]
  end
end
