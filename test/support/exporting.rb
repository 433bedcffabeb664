# frozen_string_literal: true

require_relative "exposition"
require_relative "metrics_settings"

# Exporters that need a gem, each in its own process.
module Exporting
  CONFIGURED = <<~RUBY.freeze
    require "memscope"
    require "json"
    #{MetricsSettings::CHILD}
    Memscope.configuration = [0, true]
    GC.disable # since the script counts collections: only those that it requests run
  RUBY

  def child(script) = ChildProcess.run(script, bundle: true, ruby_args: ["-W0"])

  # As docs/metrics.md requires an exporter: nothing of memscope was loaded before.
  def assert_loads_what_it_needs(feature)
    env = { "MEMSCOPE_METRICS_ARENAS" => "1", "MEMSCOPE_METRICS_LEDGER_INTERVAL" => "60" }
    ran = ChildProcess.run(<<~SCRIPT, bundle: true, ruby_args: ["-W0"], env: env)
      require "#{feature}"
      puts Memscope::Metrics.families.map(&:name).grep(/arena/).any?, Memscope::Ledger.read.to_s.include?("of RSS")
    SCRIPT

    assert_equal "true\ntrue\n", ran.out, ran
  end

  def assert_says_what_to_add(feature, gem, version = nil)
    ran = ChildProcess.run("begin; require '#{feature}'; rescue LoadError => e; puts e.message; end",
                           ruby_args: ["--disable-gems"])

    line = "gem #{[gem, *version].map(&:inspect).join(', ')}"

    assert_includes ran.out, "#{feature} needs the gem #{gem}, which is not installed: add `#{line}` to"
  end

  # The gems' own pages have the TYPE line before the HELP line.
  def assert_rows_sum(page)
    rows = page.scan(/^memscope_ledger_bytes\{.*\} (\S+)$/).flatten.map(&:to_i)

    assert_operator rows.size, :>=, 10
    assert_equal page[/^memscope_ledger_rss_bytes\S* (\S+)$/, 1].to_i, rows.sum
  end

  def collections(page) = page[/^memscope_gc_collections_total\{kind="major".*\} (\S+)$/, 1].to_i
end
