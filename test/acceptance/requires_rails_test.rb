# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/generated_application"
require_relative "../support/launching"
require_relative "../support/planted_gems"

# memscope requires -- bundle exec rails runner "", in an application as `rails new` makes it.
class RequiresRailsTest < MemscopeTest
  include Launching

  # In rake battery:requires, five runs, and derailed_benchmarks beside them.
  BATTERY = ENV.key?("MEMSCOPE_REQUIRES_BATTERY")
  RUNS = BATTERY ? 5 : 2
  # How far the runs' objects and malloc may differ: measured in the battery, on a quiet machine.
  SPREAD = BATTERY ? 0.002 : 0.02
  # What derailed bundle:mem does, for an application without a Gemfile that names it.
  DERAILED = <<~RUBY
    require "derailed_benchmarks/core_ext/kernel_require"
    require "./config/environment"
    find = ->(node) { node.name.end_with?("heavy") ? node : node.children.filter_map(&find).first }
    puts [GetProcessMem.new.mb - TOP_REQUIRE.cost, find.call(TOP_REQUIRE)&.cost].inspect
  RUBY

  # The runs' readings, that of median cost first.
  def measure(application)
    runs = Array.new(RUNS) do
      ran = application.run(*memscope("requires", "--json", "--", "bundle", "exec", "rails", "runner", "", gems: true))

      assert_exit 0, ran
      Memscope::Requires.from_json(ran.err.lines.last)
    end
    runs.sort_by(&:bytes).rotate(RUNS / 2)
  end

  # How far the runs differ, as a share of the median.
  def spread(runs) = runs.map(&:bytes).minmax.then { |least, most| (most - least).fdiv(runs.first.bytes) }

  def gem(reading, name) = reading.gems.find { |gem| gem.name == name }

  def test_runs_agree_and_sum_to_the_rows
    GeneratedApplication.open do |application|
      runs = measure(application)
      found = runs.first
      activesupport = gem(found, "activesupport")

      assert_operator spread(runs), :<=, SPREAD
      assert_equal found.objects_bytes, found.nodes.sum(&:objects_bytes) + found.other_objects_bytes
      assert_equal found.malloc_bytes, found.nodes.sum(&:malloc_bytes) + found.other_malloc_bytes
      # Ruby's own tables, which grow meanwhile, belong to no file.
      assert_operator found.other_objects_bytes.abs + found.other_malloc_bytes.abs, :<, found.bytes / 6
      # No file that the program requires goes unseen.
      assert_operator found.nodes.size, :>, 500
      assert_operator found.nodes.first.bytes, :<, found.bytes / 50
      assert_operator activesupport.lazy_files, :>, 10
      assert_operator activesupport.bytes, :>, 1 << 20
      assert_includes activesupport.required_by, "actionpack"
    end
  end

  def test_beside_derailed
    skip "runs in rake battery:requires" unless BATTERY

    rows = GeneratedApplication.open do |application|
      library = derailed_library
      source = application.read("config/application.rb")
      { "first" => 'require_relative "boot"', "after Rails" => "Bundler.require(*Rails.groups)" }.map do |place, line|
        application.write("config/application.rb", source.sub(line) { "#{line}\n#{planted}" })
        [place, *memscope_row(application), *derailed_row(application, library)]
      end
    end
    puts "\na gem of 5 MiB, required | memscope: spread, gem | derailed: spread, gem"
    rows.each do |place, spread, gem, others_spread, others_gem|
      puts "#{place.ljust(24)} | #{spread.round(3)} %, #{gem.round(2)} MiB | " \
           "#{others_spread.round(3)} %, #{others_gem.round(2)} MiB"

      assert_in_delta 5.0, gem, 0.05
    end
  end

  private

  def planted
    directories = PlantedGems.plant(directory).map { |option| option.delete_prefix("-I") }
    "$LOAD_PATH.unshift(*#{directories}); require \"heavy\""
  end

  def memscope_row(application)
    runs = measure(application)
    [spread(runs) * 100, gem(runs.first, "heavy").bytes.fdiv(1 << 20)]
  end

  def derailed_row(application, library)
    totals, gems = Array.new(RUNS) do
      ran = application.run("bundle", "exec", "ruby", "-e", DERAILED, env: { "RUBYLIB" => library })
      ran.json
    end.transpose
    [(totals.max - totals.min) / totals.sort[RUNS / 2] * 100, gems.sort[RUNS / 2]]
  end

  # Installs derailed_benchmarks in this test's directory; no application names it.
  def derailed_library
    installed = ChildProcess.run_command("gem", "install", "--no-document", "--install-dir", path("derailed"),
                                         "derailed_benchmarks")
    raise ChildProcess::Failure, installed.to_s unless installed.success?

    Dir[path("derailed/gems/{derailed_benchmarks,get_process_mem,bigdecimal,ffi}-*/lib")].join(":")
  end
end
