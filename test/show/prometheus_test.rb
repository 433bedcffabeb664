# frozen_string_literal: true

require_relative "../test_helper"
require "json"
require "open3"
require_relative "../support/exposition"
require_relative "../support/metrics_settings"

class PrometheusTest < MemscopeTest
  include MetricsSettings

  PROMTOOL = Exposition::PROMTOOL
  DASHBOARD = JSON.parse(File.read(File.join(ChildProcess::ROOT, "docs/grafana.json")))

  def need_promtool
    return if PROMTOOL

    flunk "promtool is not installed: bin/setup installs it" if ENV["CI"] && !ChildProcess::WITHOUT_BUNDLE

    skip "promtool is not installed"
  end

  both_allocators "promtool finds nothing" do |preload|
    need_promtool
    text = ChildProcess.run(<<~RUBY, requires: ["memscope"], preload: preload).out
      #{CHILD}
      Memscope.configuration = [60, true]
      puts Memscope::Prometheus.text
    RUBY
    families = Exposition.parse(text)

    assert_operator families.size, :>, 30
    assert_includes families, "memscope_ledger_bytes"
    assert_equal ["", 0], lint(text)
  end

  def test_promtool_finds_nothing_of_a_cluster
    need_promtool
    text = cluster_text

    assert_equal ["", 0], lint(text)
  end

  def test_promtool_is_asked_in_earnest
    need_promtool

    assert_equal 3, lint(cluster_text.gsub("memscope_gc_collections_total", "memscope_gc_collections")).last
  end

  def test_each_sample_is_there_once_and_has_no_pid
    families = Exposition.parse(cluster_text)
    labels = families.values.flatten.flat_map { |sample| sample.labels.keys }.uniq

    assert_equal 3, families["memscope_worker_uss_bytes"].size
    assert_empty labels - Memscope::Metrics::DEFINITIONS.flat_map(&:label_names)
    assert_empty(families.values.flatten.select { |sample| sample.labels.value?(Process.pid.to_s) })
  end

  def test_the_text
    families = [family("memscope_a_bytes", "Says \\ and more", [[{}, -5]]),
                family("memscope_b_total", "Counts", [[{ row: "x" }, 1], [{ row: "y", worker: "0" }, 0.25]], :counter)]

    assert_equal <<~'TEXT', Memscope::Prometheus.format(families)
      # HELP memscope_a_bytes Says \\ and more
      # TYPE memscope_a_bytes gauge
      memscope_a_bytes -5
      # HELP memscope_b_total Counts
      # TYPE memscope_b_total counter
      memscope_b_total{row="x"} 1
      memscope_b_total{row="y",worker="0"} 0.25
    TEXT
  end

  def test_labels_are_escaped
    hostile = %(a"b\\c\nd"} 1\nmemscope_evil{x="\xFF\u00e9)
    text = configured { Memscope::Prometheus.text(worker: hostile) }
    workers = Exposition.parse(text).values.flatten.filter_map { |sample| sample.labels[:worker] }.uniq

    assert_equal [hostile.scrub], workers
    assert_equal ["", 0], lint(text) if PROMTOOL

    assert_predicate text, :valid_encoding?
    assert_equal Encoding::UTF_8, text.encoding
  end

  def test_the_content_type
    assert_equal "text/plain; version=0.0.4; charset=utf-8", Memscope::Prometheus::CONTENT_TYPE
  end

  def test_the_dashboard_asks_for_families_that_there_are
    names = Memscope::Metrics::DEFINITIONS.map(&:name)
    asked = expressions.flat_map { |expression| expression.scan(/\b[a-z]+_[a-z_]+\b(?=[\[{])/) }

    expressions.each { |expression| assert_match(/\bmemscope_/, expression) }
    assert_empty asked - names
    assert_operator asked.size, :>=, expressions.size
    assert_equal DASHBOARD["panels"].size, DASHBOARD["panels"].map { |panel| panel["id"] }.uniq.size
  end

  def test_the_dashboard_names_labels_that_there_are
    expressions.each do |expression|
      definition = Memscope::Metrics::DEFINITIONS.find { |one| expression[/memscope_\w+/] == one.name }
      labels = expression.scan(/by \((\w+)\)|(\w+)=~?"/).flatten.compact.map(&:to_sym)

      assert_empty labels - definition.label_names - %i[job instance], expression
    end
  end

  def test_promtool_understands_the_dashboard
    need_promtool
    rules = expressions.map.with_index do |expression, index|
      { record: "dashboard:#{index}", expr: expression.gsub("$__rate_interval", "1m").gsub(/\$\w+/, ".*") }
    end
    Tempfile.create(["rules", ".yml"]) do |file|
      file.write(JSON.generate(groups: [{ name: "dashboard", rules: rules }]))
      file.flush
      out, status = Open3.capture2e(PROMTOOL, "check", "rules", file.path)

      assert_predicate status, :success?, out
      assert_includes out, "SUCCESS: #{rules.size} rules found"
    end
  end

  private

  def cluster_text
    clustered(master, worker(0), worker(1, pid: Process.pid)) { configured(interval: 60) { Memscope::Prometheus.text } }
  end

  def lint(text) = Exposition.lint(text)

  def family(name, help, samples, type = :gauge)
    samples = samples.map { |labels, value| { labels: labels, value: value } }
    Memscope::Metrics::Family.capture({ name: name, help: help, type: type, unit: nil, samples: samples })
  end

  def expressions = DASHBOARD["panels"].flat_map { |panel| panel["targets"].map { |target| target["expr"] } }
end
