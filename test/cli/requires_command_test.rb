# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/launching"
require_relative "../support/planted_gems"

# memscope requires -- COMMAND, over gems of known cost.
class CLIRequiresTest < MemscopeTest
  include Launching

  parallelize_me!

  # By how much objects' bytes may differ from one run to the next: from Ruby 3.3 on, by slots at the ends of two pages.
  PAGES = RUBY_VERSION < "3.3" ? 0 : 2 * 65_536

  def setup
    super
    @load_path = PlantedGems.plant(directory)
  end

  def requires(*options, script, preload: nil)
    launch("requires", *options, "--", *RUBY, *@load_path, "-e", script, preload: preload)
  end

  def reading(*options, script, preload: nil)
    ran = requires("--json", *options, script, preload: preload)

    assert_exit 0, ran
    Memscope::Requires.from_json(ran.err.lines.last)
  end

  def gem(reading, name) = reading.gems.find { |gem| gem.name == name }

  def test_a_gem_is_charged_what_it_costs_at_any_place
    ["require 'json'; require 'light'; require 'heavy'", "Thread.new { require 'heavy' }.join"].each do |script|
      assert_in_delta PlantedGems::HEAVY_BYTES, gem(reading(script), "heavy").bytes, PlantedGems::HEAVY_BYTES / 100
    end
  end

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

  def test_a_program_that_loads_nothing
    ran = requires("1")

    assert_exit 0, ran
    assert_match(/0 files/, ran.err)
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

  def test_what_a_file_requires_again_costs_it_nothing
    found = reading("20_000.times { require 'heavy' }; require 'light'")

    assert_operator found.nodes.first.objects, :<, 10_000
  end

  def test_mapped_bytes_are_what_the_kernel_says
    ran = requires("--json", <<~'RUBY')
      require "socket"
      mappings = File.read("/proc/self/smaps").split(/^(?=\h+-\h+ )/).grep(%r{/socket\.so$})
      puts mappings.sum { |mapping| mapping[/^Rss: +(\d+) kB/, 1].to_i << 10 }
    RUBY
    socket = Memscope::Requires.from_json(ran.err.lines.last).nodes.find { |node| node.path.end_with?("/socket.so") }

    assert_exit 0, ran
    assert_operator Integer(ran.out), :positive?
    assert_in_delta Integer(ran.out), socket.mapped_bytes, 32 << 10 # what runs between the two readings
  end

  def test_the_tree
    found = reading("require 'heavy'; Light::Late; require 'socket'")
    program, *files = found.nodes
    heavy, light, late, socket = %w[/heavy.rb /light.rb /late.rb /socket.so].map do |ending|
      files.find { |node| node.path.end_with?(ending) }
    end

    assert_equal [program.id, heavy.id, program.id], [heavy.parent, light.parent, late.parent]
    assert_equal [false, false, true, false], [heavy, light, late, socket].map(&:lazy?)
    assert_equal heavy.bytes + light.bytes, found.inclusive_bytes(heavy)
    assert_operator socket.mapped_bytes, :>, 4096
    assert_equal "ruby", socket.gem
  end

  def test_the_page
    ran = requires("--top=3", "puts 1; require 'heavy'; Light::Late")

    assert_exit 0, ran, out: "1\n"
    assert_match(/^  \d+\.\d MiB in use: .* through malloc$/, ran.err)
    assert_match(/^ *5\.\d +3\.0 +2\.\d +0\.0 +1  heavy$/, ran.err)
    assert_match(/^ *0\.8 +0\.0 +0\.8 +0\.0 +2  light \(1 lazy; for heavy\)$/, ran.err)
    assert_match(%r{light: light/late\.rb \(lazy\)$}, ran.err)
    assert_operator ran.err.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  def test_a_compaction_is_reported
    skip_without_compaction

    assert_match(/a compaction moved objects/, reading("GC.compact").reasons[:objects_bytes])
    assert_nil reading("1").reasons[:objects_bytes]
  end

  def test_an_earlier_run_is_compared
    difference = reading("require 'heavy'") - reading("require 'light'")

    assert_in_delta PlantedGems::HEAVY_BYTES, %i[objects_bytes malloc_bytes].sum { |name| difference[name].change },
                    200_000 + PAGES
    assert_in_delta 3 << 20, difference.dig(:gems, "heavy", :objects_bytes).change, 30_000
    assert_match(/^ +\+3,1\d\d,\d{3} B  gems\.heavy\.objects_bytes$/, difference.to_s)
  end

  def test_it_ends_as_the_program_does
    assert_exit 3, requires("require 'heavy'; exit 3"), err: /heavy/
    assert_exit 0, requires("exit!(0)"), err: ""
    assert_exit 127, launch("requires", "--output", path("out"), "--", "no-such-command")
    refute_path_exists path("out")
  end

  def test_wrong_values
    assert_includes requires("--top=0", "1").err, "--top: given \"0\", allowed: a number from 1 to 10000"
  end
end
