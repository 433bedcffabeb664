# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/exposition"
require_relative "../support/metrics_settings"
require_relative "../support/prometheus_server"
require_relative "../support/scraped_application"

# Debian's Prometheus scrapes a Rack application under Puma, one under each allocator, and is asked over its API.
class PrometheusAcceptanceTest < MemscopeTest
  parallelize_me!

  SCRAPES = 12
  # A thread keeps allocating while it is scraped, and a little stays of each scrape. It is as large as applications
  # are: of a process that does nothing, what came and went since the last ledger, up to two seconds ago, is 1 %.
  RACKUP = <<~RUBY.freeze
    require "memscope"
    require "memscope/prometheus"
    #{MetricsSettings::CHILD}
    Memscope.configuration = [2, true]
    Thread.new { loop { Array.new(200) { "x" * rand(24..2_000) }; sleep 0.01 } }
    KEPT = ["z" * (100 << 20)]
    run(lambda do |env|
      KEPT << ("y" * 20_000)
      [200, { "content-type" => Memscope::Prometheus::CONTENT_TYPE }, [Memscope::Prometheus.text]]
    end)
  RUBY

  def test_rows_sum_to_rss
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    skip_under_sanitizer
    need_prometheus
    applications(ChildProcess::ALLOCATORS) do |ports|
      PrometheusServer.run(ports.transform_keys(&:to_s)) do |prometheus|
        enough = prometheus.wait(40) { ports.keys.all? { |job| scrapes(prometheus, job) >= SCRAPES } }
        flunk prometheus.targets.map { |target| target.slice("health", "lastError") }.inspect unless enough

        ports.each_key { |job| assert_rows(prometheus, job) }
        assert_dashboard(prometheus)
      end
    end
  end

  private

  def need_prometheus
    return if PrometheusServer.installed?

    flunk "prometheus is not installed: bin/setup installs it" if ENV["CI"]
    skip "prometheus is not installed"
  end

  def scrapes(prometheus, job) = prometheus.value("count_over_time(memscope_rss_bytes{job=\"#{job}\"}[1m])") || 0

  def assert_rows(prometheus, job)
    sum, scanned, rss = ["sum(memscope_ledger_bytes{job=\"#{job}\"})", "memscope_ledger_rss_bytes{job=\"#{job}\"}",
                         "memscope_rss_bytes{job=\"#{job}\"}"].map { |expression| prometheus.value(expression) }
    readings = prometheus.query("memscope_ledger_read_time_seconds{job=\"#{job}\"}[1m]").first["values"].map(&:last)

    assert_equal scanned, sum
    assert_in_delta 1.0, sum / rss, 0.01, "#{job}: rows #{sum}, RSS #{rss}"
    assert_in_delta(1.0, prometheus.value("memscope_allocator_info{job=\"#{job}\",allocator=\"#{job}\"}"))
    # Every second a scrape, every other one with a new ledger.
    assert_includes (readings.size * 0.3)..(readings.size * 0.8), readings.uniq.size
  end

  # Every panel shows something: but for workers, which are not here, and for what the cgroup may not have.
  def assert_dashboard(prometheus)
    panels = JSON.parse(File.read(File.join(ChildProcess::ROOT, "docs/grafana.json")))["panels"]
    empty = panels.reject { |panel| panel["targets"].any? { |target| shows?(prometheus, target["expr"]) } }

    assert_empty(empty.map do |panel|
      panel["title"]
    end.grep_v(/\A(Container|OOM|Waiting|Workers: (PSS|unshared|growth))/))
  end

  def shows?(prometheus, expression)
    expression = expression.gsub("$__rate_interval", "1m").gsub(/\$(job|instance)/, ".*")
    prometheus.query(expression).any?
  end

  # Runs one for each allocator.
  #
  # @yieldparam ports [Hash{Symbol => Integer}]
  def applications(allocators, ports = {}, &block)
    return yield ports if allocators.size == ports.size

    name, preload = allocators.to_a[ports.size]
    ScrapedApplication.run(RACKUP, preload: preload) do |port|
      applications(allocators, { **ports, name => port }, &block)
    end
  end
end
