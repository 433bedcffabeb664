# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/exposition"
require_relative "support/metrics_settings"

# The exporters that need a gem, each in its own process.
class ExportersTest < MemscopeTest
  CONFIGURED = <<~RUBY.freeze
    require "memscope"
    require "json"
    #{MetricsSettings::CHILD}
    Memscope.configuration = [0, true]
    GC.disable # since the script counts collections: only those that it requests run
  RUBY

  PROMETHEUS_CLIENT = <<~RUBY.freeze
    #{CONFIGURED}
    require "memscope/prometheus_collector"
    require "prometheus/client/formats/text"
    registry = Prometheus::Client::Registry.new
    registry.gauge(:of_the_application, docstring: "Its own").set(1)
    Memscope::PrometheusCollector.register(registry, worker: "a")
    pages = Array.new(2) { GC.start; Prometheus::Client::Formats::Text.marshal(registry) }
    again = begin
      Memscope::PrometheusCollector.register(registry)
    rescue Prometheus::Client::Registry::AlreadyRegisteredError => e
      e.message
    end
    row = registry.get(:memscope_ledger_bytes).get(labels: { row: "unattributed", worker: "a" })
    puts({ pages: pages, again: again, row: row, none: registry.get(:memscope_rss_bytes).get(labels: {}) }.to_json)
  RUBY

  YABEDA = <<~RUBY.freeze
    #{CONFIGURED}
    require "yabeda/prometheus"
    require "memscope/yabeda"
    Yabeda.configure!
    pages = Array.new(3) do
      GC.start
      Yabeda.collect!
      [GC.count, Prometheus::Client::Formats::Text.marshal(Prometheus::Client.registry)]
    end
    puts({ pages: pages, ledger: Yabeda.memscope.ledger_bytes.values.size }.to_json)
  RUBY

  # One reader is added before the instruments, one after them.
  OPEN_TELEMETRY = <<~RUBY.freeze
    ENV.update("OTEL_METRICS_EXPORTER" => "none", "OTEL_TRACES_EXPORTER" => "none", "OTEL_LOGS_EXPORTER" => "none")
    #{CONFIGURED}
    require "memscope/open_telemetry"
    early = begin
      Memscope::OpenTelemetry.install
    rescue ArgumentError => e
      e.message
    end
    OpenTelemetry::SDK.configure
    readers = Array.new(2) { OpenTelemetry::SDK::Metrics::Export::InMemoryMetricPullExporter.new }
    OpenTelemetry.meter_provider.add_metric_reader(readers.first)
    made = [Memscope::OpenTelemetry.install, Memscope::OpenTelemetry.install]
    OpenTelemetry.meter_provider.add_metric_reader(readers.last)
    pulls = [*readers, *readers].map do |reader|
      GC.start
      reader.reset
      reader.pull
      reader.metric_snapshots.map do |metric|
        points = metric.data_points.map { |point| [point.attributes, point.value] }
        { name: metric.name, unit: metric.unit, kind: metric.instrument_kind, points: points }
      end
    end
    puts({ early: early, made: made, pulls: pulls, collections: GC.stat[:major_gc_count] }.to_json)
  RUBY

  def child(script) = ChildProcess.run(script, bundler: true, ruby_args: ["-W0"])

  def test_prometheus_client
    read = child(PROMETHEUS_CLIENT).json

    read["pages"].each { |page| assert_rows_sum(page) }
    first, second = read["pages"].map { |page| collections(page) }

    assert_operator second, :>, first
    assert_includes read["pages"].first, "of_the_application 1.0"
    assert_match(/worker="a"/, read["pages"].first)
    assert_match(/already been registered/, read["again"])
    assert_kind_of Integer, read["row"]
    assert_nil read["none"]
  end

  def test_yabeda
    read = child(YABEDA).json

    read["pages"].each do |collected, page|
      assert_rows_sum(page)
      assert_equal(collected, page.scan(/^memscope_gc_collections_total\{.*\} (\S+)$/).sum { |(value)| value.to_i })
    end
    assert_operator read["ledger"], :>=, 10
  end

  def test_open_telemetry
    ran = child(OPEN_TELEMETRY)
    read = ran.json

    refute_match(/duplicate|warn/i, ran.err)
    assert_match(/given OpenTelemetry::Internal::ProxyMeterProvider, allowed: one of the SDK/, read["early"])
    assert_operator read["made"].first, :>, 50
    assert_equal 0, read["made"].last
    read["pulls"].each do |metrics|
      assert_equal read["made"].first, metrics.size
      assert_measured(metrics.group_by { |metric| metric["name"] })
    end
    assert_equal read["collections"], major_collections(read["pulls"].last)
  end

  # As docs/metrics.md requires them: nothing of memscope was loaded before.
  def test_each_exporter_loads_what_it_needs
    env = { "MEMSCOPE_METRICS_ARENAS" => "1", "MEMSCOPE_METRICS_LEDGER_INTERVAL" => "60" }
    %w[prometheus_collector yabeda open_telemetry].each do |feature|
      ran = ChildProcess.run(<<~RUBY, bundler: true, ruby_args: ["-W0"], env: env)
        require "memscope/#{feature}"
        puts Memscope::Metrics.families.map(&:name).grep(/arena/).any?, Memscope::Ledger.read.to_s.include?("of RSS")
      RUBY

      assert_equal "true\ntrue\n", ran.out, ran
    end
  end

  { "open_telemetry" => "opentelemetry-metrics-sdk", "prometheus_collector" => "prometheus-client",
    "yabeda" => "yabeda" }.each do |feature, gem|
    define_method("test_#{feature}_says_what_to_add_to_the_gemfile") do
      ran = ChildProcess.run("begin; require 'memscope/#{feature}'; rescue LoadError => e; puts e.message; end",
                             ruby_args: ["--disable-gems"])

      assert_includes ran.out,
                      "memscope/#{feature} needs the gem #{gem}, which is not installed: add `gem \"#{gem}\"` to"
    end
  end

  def test_a_gem_that_is_broken_is_not_called_missing
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "yabeda.rb"), 'require "something_else_that_is_not_there"')
      ran = ChildProcess.run('begin; require "memscope/yabeda"; rescue LoadError => e; puts e.message; end',
                             ruby_args: ["--disable-gems", "-I#{directory}"])

      assert_match(/cannot load such file -- something_else/, ran.out)
    end
  end

  private

  # The gems' own pages have the TYPE line before the HELP line.
  def assert_rows_sum(page)
    rows = page.scan(/^memscope_ledger_bytes\{.*\} (\S+)$/).flatten.map(&:to_i)

    assert_operator rows.size, :>=, 10
    assert_equal page[/^memscope_ledger_rss_bytes\S* (\S+)$/, 1].to_i, rows.sum
  end

  def collections(page) = page[/^memscope_gc_collections_total\{kind="major".*\} (\S+)$/, 1].to_i

  def assert_measured(metrics)
    rows = metrics["memscope.ledger"]

    assert_equal(%w[observable_gauge], metrics.values.flatten.map { |metric| metric["kind"] }.uniq)
    assert_equal(["By"], rows.map { |metric| metric["unit"] }.uniq)
    assert_equal(rows.size, rows.map { |metric| metric["points"].first.first.fetch("row") }.uniq.size)
    assert_equal(metrics["memscope.ledger_rss"].first["points"].first.last, rows.sum { |row| row["points"].first.last })
    assert_empty(metrics.values.flatten.flat_map { |metric| metric["points"].first.first.keys }.grep(/pid|worker/))
  end

  def major_collections(metrics)
    points = metrics.select { |metric| metric["name"] == "memscope.gc_collections" }.flat_map { |one| one["points"] }
    points.to_h { |attributes, value| [attributes["kind"], value] }["major"]
  end
end
