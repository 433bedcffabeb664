# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/exporting"

class PrometheusCollectorTest < MemscopeTest
  include Exporting

  PROMETHEUS_CLIENT = <<~RUBY.freeze
    #{Exporting::CONFIGURED}
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
end
