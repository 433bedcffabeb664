# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/required_programs"

# memscope requires -- COMMAND, over gems of known cost.
class CLIRequiresTest < MemscopeTest
  include RequiredPrograms

  parallelize_me!

  def test_a_gem_is_charged_what_it_costs_at_any_place
    ["require 'json'; require 'light'; require 'heavy'", "Thread.new { require 'heavy' }.join"].each do |script|
      assert_in_delta PlantedGems::HEAVY_BYTES, gem(reading(script), "heavy").bytes, PlantedGems::HEAVY_BYTES / 100
    end
  end

  def test_a_program_that_loads_nothing
    ran = requires("1")

    assert_exit 0, ran
    assert_match(/0 files/, ran.err)
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
