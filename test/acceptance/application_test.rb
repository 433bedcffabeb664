# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/served_application"
require "time"

# memscope in a running application: booted, mounted, queried over HTTP, purged, forked and restarted.
class ApplicationTest < MemscopeTest
  parallelize_me!

  MIB = 1024 * 1024
  CREDENTIALS = { "Authorization" => "Basic #{['ops:a long word'].pack('m0')}" }.freeze
  CONFIGURATION = <<~RUBY
    Memscope.configure do |c|
      c.username = "ops"
      c.password = "a long word"
      c.worker_interval_seconds = 1
      c.metrics_ledger_interval_seconds = 1
    end
  RUBY

  def json(application, path, **options) = JSON.parse(application.get("/memscope#{path}", **options).body)

  def authorised(application, path, accept: "application/json")
    application.get("/memscope#{path}", headers: { **CREDENTIALS, "Accept" => accept })
  end

  # Sends the page's form as a browser does.
  def purge(application, lever)
    headers = { **CREDENTIALS, "Accept" => "application/json", "Sec-Fetch-Site" => "same-origin" }
    application.post("/memscope/purge", form: { "lever" => lever }, headers: headers)
  end

  def resident_bytes(pid) = Integer(File.read("/proc/#{pid}/statm").split[1]) * 4096

  def kernels(pid, name) = File.read("/proc/#{pid}/smaps_rollup")[/^#{name}:\s+(\d+) kB/, 1].to_i * 1024

  def workers_when(application, what)
    found = nil
    application.until_found(what) do
      found = authorised(application, "/workers").json.fetch("workers")
      yield(found)
    end
    found
  end

  def all_of?(workers, count) = workers.count { |worker| worker["role"] == "worker" && worker["rss_bytes"] } == count
end

class RailsApplicationTest < ApplicationTest
  # Here, only a purge returns dirty pages: pages that decayed between two readings would be mistaken for purged ones.
  NEVER = { "MALLOC_CONF" => "dirty_decay_ms:-1,muzzy_decay_ms:-1" }.freeze

  both_allocators "a generated Rails application", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    ServedApplication.rails(initializer: CONFIGURATION, preload: preload, env: NEVER) do |application|
      closed_until_authorised(application)
      readings_sum(application)
      purged_by_the_kernels_count(application, preload ? "purge" : "trim")
      every_worker(application)
      metrics_sum(application)
    end
  end

  # With neither variable set, Rails too assumes development. In bin/test, test/web/web_test.rb asks this without Rails.
  only_in_full def test_development_opens_nothing
    skip_under_sanitizer
    unset = { "RACK_ENV" => nil, "RAILS_ENV" => nil }

    ServedApplication.rails(workers: 0, puma: "", env: unset) do |application|
      assert_equal 403, application.get("/memscope").status
    end
  end

  private

  def closed_until_authorised(application)
    wrong = { "Authorization" => "Basic #{['ops:another'].pack('m0')}" }
    refused = [{}, wrong].map { |headers| application.get("/memscope", headers: headers) }

    assert_equal [401, 401], refused.map(&:status)
    refused.each { |answer| refute_match(/MiB|ruby|malloc/i, answer.body) }
    assert_match(/memscope web: GET \S+ from 127\.0\.0\.1: refused: wrong username or password/, application.log)
  end

  def readings_sum(application)
    page = authorised(application, "", accept: "text/html")
    ledger = authorised(application, "/ledger").json

    assert_equal [200, "text/html; charset=utf-8"], [page.status, page.headers["content-type"]]
    assert_match(/default-src 'none'/, page.headers["content-security-policy"])
    assert_includes page.body, "malloc"
    assert_equal(ledger["rss_bytes"], ledger["rows"].sum { |row| row["bytes"] })
  end

  def purged_by_the_kernels_count(application, lever)
    6.times { application.post("/garbage", form: { mebibytes: 32 }) }
    before = application.worker_pids.to_h { |pid| [pid, resident_bytes(pid)] }
    answer = purge(application, lever)

    assert_equal 200, answer.status, "#{answer.body}\n#{application.log[-1500..]}"
    results = answer.json["workers"].map { |worker| worker.fetch("result") }

    assert_operator answer.json["returned_bytes"], :>, 8 * MIB
    assert_equal before.keys.sort, results.map { |result| result["pid"] }.sort
    results.each do |result|
      left = before.fetch(result["pid"]) - result["returned_bytes"]

      assert_in_delta left, resident_bytes(result["pid"]), 16 * MIB
    end
  end

  # A worker's report is at most a second old, the master's a minute.
  def every_worker(application)
    workers = workers_when(application, "reports that the kernel confirms") do |found|
      all_of?(found, 2) && found.all? do |one|
        one["role"] == "master" || (confirmed?(one, "Rss") && confirmed?(one, "Pss"))
      end
    end

    assert_equal application.worker_pids.sort, workers.filter_map { |one| one["pid"] if one["role"] == "worker" }.sort
  end

  def confirmed?(worker, name)
    reported = worker["#{name.downcase}_bytes"]
    reported && (kernels(worker["pid"], name) - reported).abs <= 4 * MIB
  end

  def metrics_sum(application)
    text = nil
    application.until_found("the ledger's rows") do
      text = authorised(application, "/metrics", accept: "*/*").body
      text.include?("memscope_ledger_bytes{")
    end
    sums = Hash.new(0)
    text.scan(/^memscope_ledger_bytes\{(.*)\} (-?\d+)$/) do |labels, bytes|
      sums[labels[/worker="(\w+)"/, 1]] += bytes.to_i
    end
    totals = text.scan(/^memscope_ledger_rss_bytes(?:\{.*worker="(\w+)".*\})? (\d+)$/).to_h { |name, n| [name, n.to_i] }

    assert_operator sums.size, :>=, 2
    assert_equal totals, sums
  end
end

class RackApplicationTest < ApplicationTest
  def test_closed_in_production_until_configured
    ServedApplication.sinatra(workers: 0, puma: "") do |application|
      assert_equal 403, application.get("/memscope").status
      assert_match(/refused: .*Configure username and password/, application.log)
      assert_equal 200, application.get("/pid").status
    end
  end

  only_in_full def test_an_environment_that_nobody_named_is_production
    unset = { "RACK_ENV" => nil, "RAILS_ENV" => nil }

    ServedApplication.sinatra(workers: 0, puma: "", env: unset) do |application|
      assert_equal 403, application.get("/memscope").status
    end
  end

  only_in_full def test_development_without_rails_opens_nothing
    ServedApplication.sinatra(workers: 0, puma: "", env: { "RACK_ENV" => "development" }) do |application|
      assert_equal 403, application.get("/memscope").status
    end
  end

  # As in test/acceptance/workers_test.rb, of an application that requires all of memscope.
  only_in_full def test_a_phased_restart
    ServedApplication.sinatra(configuration: CONFIGURATION, puma: "preload_app! false") do |application|
      old = application.worker_pids
      Process.kill(:USR1, application.pid)
      application.until_found("other workers") { !application.worker_pids.intersect?(old) }
      now = application.worker_pids
      workers = workers_when(application, "the new workers") do |found|
        found.filter_map { |worker| worker["pid"] if worker["role"] == "worker" }.sort == now.sort
      end

      assert(workers.all? { |worker| worker["role"] == "master" || worker["phase"].positive? })
    end
  end
end
