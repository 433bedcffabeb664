# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/exposition"
require_relative "../support/metrics_settings"
require_relative "../support/prometheus_server"
require_relative "../support/scraped_application"
require_relative "../support/served_application"

# Debian's Prometheus scrapes real applications, one under each allocator, and is queried over its API.
class PrometheusAcceptanceTest < MemscopeTest
  parallelize_me!

  # No decay: pages that jemalloc returned between a ledger and the RSS read after it would be in one but not the other.
  NEVER = { "MALLOC_CONF" => "dirty_decay_ms:-1,muzzy_decay_ms:-1" }.freeze
  PANELS = JSON.parse(File.read(File.join(ChildProcess::ROOT, "docs/grafana.json"))).fetch("panels")

  private

  def need_prometheus
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    skip_under_sanitizer
    return if PrometheusServer.installed?

    flunk "prometheus is not installed: bin/setup installs it" if ENV["CI"]
    skip "prometheus is not installed"
  end

  def wait_for(prometheus, seconds, &)
    return if prometheus.wait(seconds, &)

    flunk prometheus.targets.map { |target| target.slice("health", "lastError") }.inspect
  end

  # @return [Array<String>] titles of the panels that show nothing, except those on numbers that a cgroup may not have
  def empty_panels(prometheus)
    empty = PANELS.reject { |panel| panel["targets"].any? { |target| shown(prometheus, target["expr"]).any? } }
    empty.map { |panel| panel["title"] }.grep_v(/\A(Container|OOM|Waiting)/)
  end

  def shown(prometheus, expression)
    prometheus.query(expression.gsub("$__rate_interval", "1m").gsub(/\$(job|instance)/, ".*"))
  end
end

# A Rack application in a single process.
class PrometheusApplicationTest < PrometheusAcceptanceTest
  SCRAPES = 12
  # A thread keeps allocating while the application is scraped, and each scrape leaves a little memory behind. The
  # process is as large as real applications: in a small one, changes since the last ledger (some seconds ago, on a busy
  # machine) would be more than a few percent.
  RACKUP = <<~RUBY.freeze
    require "memscope"
    require "memscope/show/prometheus"
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
    need_prometheus
    applications(ChildProcess::ALLOCATORS) do |ports|
      PrometheusServer.run(ports.transform_keys(&:to_s)) do |prometheus|
        wait_for(prometheus, 40) { ports.keys.all? { |job| scrapes(prometheus, job) >= SCRAPES } }

        ports.each_key { |job| assert_rows(prometheus, job) }
        # Except the panels on workers, since there are none here.
        assert_empty empty_panels(prometheus).grep_v(/\AWorkers: (PSS|unshared|growth)/)
      end
    end
  end

  private

  def scrapes(prometheus, job) = prometheus.value("count_over_time(memscope_rss_bytes{job=\"#{job}\"}[1m])") || 0

  def assert_rows(prometheus, job)
    # One query for each comparison: between two, Prometheus may scrape.
    sum = "sum(memscope_ledger_bytes{job=\"#{job}\"})"
    scanned = "memscope_ledger_rss_bytes{job=\"#{job}\"}"
    rss = "memscope_rss_bytes{job=\"#{job}\"}"
    readings = prometheus.query("memscope_ledger_read_time_seconds{job=\"#{job}\"}[1m]").first["values"].map(&:last)

    assert_equal 0, prometheus.value("#{sum} - scalar(#{scanned})"), job
    assert_in_delta 1.0, prometheus.value("#{sum} / scalar(#{rss})"), 0.03, job
    assert_in_delta(1.0, prometheus.value("memscope_allocator_info{job=\"#{job}\",allocator=\"#{job}\"}"))
    # There is a scrape every second, and a new ledger in every other one.
    assert_includes (readings.size * 0.3)..(readings.size * 0.8), readings.uniq.size
  end

  # Runs one application for each allocator.
  #
  # @yieldparam ports [Hash{Symbol => Integer}]
  def applications(allocators, ports = {}, &block)
    return yield ports if allocators.size == ports.size

    name, preload = allocators.to_a[ports.size]
    ScrapedApplication.run(RACKUP, preload: preload, env: NEVER) do |port|
      applications(allocators, { **ports, name => port }, &block)
    end
  end
end

# A Rails application that two workers serve, scraped for a minute.
class PrometheusClusterTest < PrometheusAcceptanceTest
  SCRAPES = 60
  PROCESSES = %w[0 1 master].freeze
  # Growth has a rate only with a verdict, in an hour.
  LATER = /\AWorkers: growth/
  CREDENTIALS = { username: "ops", password: "a long word" }.freeze
  HEADERS = { "Authorization" => "Basic #{[CREDENTIALS.values.join(':')].pack('m0')}" }.freeze
  # Each request leaves a little memory behind. The process is as large as real applications: the kernel's count lags
  # some milliseconds behind the ledger's scan, and what an idle small process returns meanwhile may be 1 % of it.
  INITIALIZER = <<~RUBY.freeze
    Memscope.configure do |c|
      c.username = "#{CREDENTIALS[:username]}"
      c.password = "#{CREDENTIALS[:password]}"
      c.worker_interval_seconds = 1
      c.metrics_ledger_interval_seconds = 1
      c.metrics_arenas = true
    end
    KEPT = ["z" * (100 << 20)]
    Rails.application.config.middleware.use(Class.new do
      def initialize(app) = @app = app

      def call(env)
        KEPT << ("y" * 20_000)
        @app.call(env)
      end
    end)
  RUBY

  # The clusters of both allocators are scraped at the same time.
  only_in_full def test_at_each_scrape_the_rows_of_each_worker_sum_to_its_rss
    need_prometheus
    clusters(ChildProcess::ALLOCATORS) do |applications|
      PrometheusServer.run(applications.to_h { |name, one| [name.to_s, job(one)] }) do |prometheus|
        wait_for(prometheus, 40) { applications.keys.all? { |name| scrapes(prometheus, name).any? } }
        requested(applications.values) do
          wait_for(prometheus, 90) { applications.keys.all? { |name| answered(prometheus, name).size >= SCRAPES } }
        end

        applications.each { |name, application| assert_scrapes(prometheus, name, application) }
        wait_for(prometheus, 20) { applications.all? { |name, one| as_the_kernel_says?(prometheus, name, one) } }
        wait_for(prometheus, 80) do
          empty_panels(prometheus).grep_v(LATER).empty? && workers_shown?(prometheus, applications.keys)
        end
      end
    end
  end

  private

  # Runs one cluster for each allocator, and waits until all of its processes have reported.
  def clusters(allocators, applications = {}, &block)
    return yield applications if allocators.size == applications.size

    name, preload = allocators.to_a[applications.size]
    ServedApplication.rails(initializer: INITIALIZER, preload: preload, env: NEVER) do |application|
      application.until_found("reports") { PROCESSES.all? { |one| text(application).include?(%(worker="#{one}")) } }
      clusters(allocators, { **applications, name => application }, &block)
    end
  end

  def text(application) = application.get("/memscope/metrics", headers: HEADERS).body

  def job(application) = { port: application.port, metrics_path: "/memscope/metrics", basic_auth: CREDENTIALS }

  # Lets the applications answer some ten requests a second, as long as the block runs.
  def requested(applications)
    thread = Thread.new do
      loop do
        applications.each { |application| application.get("/pid") }
        sleep 0.1
      end
    end
    yield
  ensure
    thread.kill.join
  end

  # @return [Array<(Float, String)>] the time of each scrape, and whether it succeeded
  def scrapes(prometheus, name) = prometheus.query(%(up{job="#{name}"}[5m])).flat_map { |series| series["values"] }

  # @return [Array<Float>] the times of the scrapes that succeeded
  def answered(prometheus, name) = scrapes(prometheus, name).filter_map { |time, up| time if up == "1" }

  def assert_scrapes(prometheus, name, application)
    scrapes = scrapes(prometheus, name)

    assert_no_gaps(prometheus, name, scrapes)
    assert_sums(prometheus, name, answered(prometheus, name))
    assert_counters(prometheus, name)
    assert_reports(prometheus, name, scrapes.size)
    assert_equal ["", 0], Exposition.lint(text(application)), name
  end

  # Each scrape succeeded, and has the per-process families for all processes; except scrapes that timed out because the
  # system let the application wait for a second.
  def assert_no_gaps(prometheus, name, scrapes)
    answered, failed = scrapes.partition { |_time, up| up == "1" }.map { |some| some.map(&:first) }
    took = prometheus.query(%(scrape_duration_seconds{job="#{name}"}[5m])).flat_map { |series| series["values"] }.to_h

    failed.each { |time| assert_operator Float(took.fetch(time)), :>=, 0.99, "#{name}: the scrape at #{time} failed" }
    %w[memscope_rss_bytes memscope_virtual_bytes memscope_ledger_rss_bytes memscope_gc_live_slots
       memscope_ruby_heap_bytes].each do |family|
      seen = prometheus.query(%(#{family}{job="#{name}"}[5m]))
      times = seen.to_h { |series| [series["metric"]["worker"], series["values"].map(&:first)] }

      assert_equal PROCESSES, times.keys.sort, family
      times.each { |worker, all| assert_equal answered, all.first(answered.size), "#{name}: #{family} of #{worker}" }
    end
  end

  # At each scrape, the rows sum exactly to what the ledger's scan saw, and nearly to the RSS that the kernel reported
  # just after it.
  def assert_sums(prometheus, name, times)
    rows, scanned, rss = %w[memscope_ledger_bytes memscope_ledger_rss_bytes memscope_rss_bytes].map do |family|
      sums(prometheus, %(#{family}{job="#{name}"}[5m]))
    end

    PROCESSES.product(times) do |of|
      assert_equal scanned.fetch(of), rows.fetch(of), "#{name}: #{of}"
      assert_in_delta 1.0, rows[of] / rss.fetch(of), 0.01, "#{name}: #{of}"
    end
  end

  # @return [Hash{Array(String, Float) => Float}] by worker and time
  def sums(prometheus, expression)
    prometheus.query(expression).each_with_object(Hash.new(0)) do |series, sums|
      series["values"].each { |time, value| sums[[series["metric"]["worker"], time]] += Float(value) }
    end
  end

  # The panels for workers show both workers of each application.
  def workers_shown?(prometheus, names)
    expected = names.map(&:to_s).product(PROCESSES.first(2))
    panels = PANELS.map { |panel| panel["title"] }.grep(/\AWorkers: /).grep_v(LATER)
    targets = PANELS.select { |panel| panels.include?(panel["title"]) }.flat_map { |panel| panel["targets"] }
    targets.all? do |target|
      (expected - shown(prometheus, target["expr"]).map { |one| one["metric"].values_at("job", "worker") }).empty?
    end
  end

  # Once only Prometheus sends requests, its numbers for each worker are those that the kernel reports now.
  def as_the_kernel_says?(prometheus, name, application)
    workers = application.get("/memscope/workers.json", headers: HEADERS).json["workers"].select { |one| one["index"] }
    workers.all? do |worker|
      kernel = Integer(File.read("/proc/#{worker['pid']}/statm").split[1]) * 4096
      rows = prometheus.value(%(sum(memscope_ledger_bytes{job="#{name}",worker="#{worker['index']}"})))
      (rows / kernel).between?(0.99, 1.01)
    end
  end

  def assert_counters(prometheus, name)
    counters = prometheus.query(%({__name__=~"memscope_(gc|jemalloc)_.+_total",job="#{name}"}[5m]))

    assert_operator counters.size, :>=, (name == :jemalloc ? 14 : 8) * PROCESSES.size
    counters.each do |series|
      values = series["values"].map { |_time, value| Float(value) }

      assert_equal values.sort, values, series["metric"].to_s
    end
  end

  # Workers report by themselves, so that a report's age is theirs and not the scrape's. No report is repeated.
  def assert_reports(prometheus, name, scrapes)
    prometheus.query(%(memscope_worker_report_time_seconds{job="#{name}"}[5m])).each do |series|
      reports = series["values"].map(&:last).uniq.size
      ages = series["values"].map { |time, report| time - Float(report) }

      assert_operator reports, :>=, series["metric"]["worker"] == "master" ? 1 : scrapes / 10, series["metric"]
      assert_operator ages.max, :<, 300, "#{name}: #{series['metric']}"
    end
  end
end
