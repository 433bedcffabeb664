# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/exporting"

class OpenTelemetryTest < MemscopeTest
  include Exporting

  # One reader is added before the instruments, one after them.
  OPEN_TELEMETRY = <<~RUBY.freeze
    ENV.update("OTEL_METRICS_EXPORTER" => "none", "OTEL_TRACES_EXPORTER" => "none", "OTEL_LOGS_EXPORTER" => "none")
    #{Exporting::CONFIGURED}
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

  private

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
