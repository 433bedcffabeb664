# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/browser"
require_relative "../support/puma_server"

# What a person sees of a cluster in a browser: all workers, and everything else for the chosen worker.
class WebClusterBrowserTest < MemscopeTest
  # Evaluated in a page: the pids in the headline, the chart and the actions.
  PIDS = <<~JS
    ["#hero", "#time"].map((one) => document.querySelector(one).dataset.pid)
      .concat([...document.querySelectorAll("input[name=pid]")].map((one) => one.value)).map(Number)
  JS
  # Evaluated in a page: the links to other pages that do not keep the worker.
  STRAY = <<~JS
    [...document.querySelectorAll("header a, #findings a, #foot a")].map((one) => one.getAttribute("href"))
      .filter((href) => href.startsWith("/") && !href.endsWith("?worker=1"))
  JS
  # Evaluated in a page: how much wider the table of processes is than its place, where its end would be cut.
  CUT = "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('#processes .scroll'))"

  def setup
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    skip_under_sanitizer
    super
  end

  def completed(page) = page.until_found("findings") { page.evaluate("!!document.getElementById('findings')") }

  # The address contains the credentials, as a person may type it.
  def test_one_worker_after_the_other
    PumaServer.run("workers 2", env: { "MALLOC_ARENA_MAX" => "2" }) do |server|
      workers = server.workers_when("both workers") { |all| all.count { |one| one.rss_bytes && one.index } == 2 }
      with_sidekiq(server) do
        Browser.page do |page|
          page.go_to("http://ops:sesame@127.0.0.1:#{server.port}/memscope")

          assert_overview(page, workers[0].pid)
          assert_equal "sidekiq 8.0.1 shop", page.text("#processes p b")
        end
      end
      Browser.page do |page|
        page.go_to("http://ops:sesame@127.0.0.1:#{server.port}/memscope")
        completed(page)
        page.click("#processes a[href$='worker=1']")

        assert_overview(page, workers[1].pid)

        assert_empty page.evaluate(STRAY)
        assert_other_pages(page, workers[1].pid)
        assert_heap_graph(page, workers[1].pid)
        assert_purge(page, workers[1].pid)

        assert_empty page.complaints
      end
    end
  end

  def test_a_form_changes_only_the_process_of_its_page
    PumaServer.run("workers 2") do |server|
      pids = server.workers_when("both workers") { |all| all.count { |one| one.at && one.index } == 2 }
                   .select(&:index).map(&:pid)
      purge = ->(**fields) { server.post("/memscope/purge", { lever: "gc", **fields }) }

      assert_equal "409", purge.call(pid: "1").code
      assert_equal "409", purge.call(pid: pids[0].to_s, worker: "1").code
      assert_equal pids[1], JSON.parse(purge.call(pid: pids[1].to_s).body)["pid"]
      [{ worker: "all", pid: "1" }, {}].each do |fields|
        assert_equal pids.sort, JSON.parse(purge.call(**fields).body)["workers"].map { |one| one["pid"] }.sort
      end
    end
  end

  private

  # Another process that listens, with a title like Sidekiq's.
  def with_sidekiq(server)
    script = '$0 = "sidekiq 8.0.1 shop [2 of 10 busy]"; Memscope.listen; $stdout.syswrite("listens\n"); $stdin.read'
    environment = ChildProcess.environment(nil, { "MEMSCOPE_SOCKET_DIRECTORY" => server.directory })
    IO.popen(environment, [*ChildProcess.ruby, "-rmemscope", "-e", script], "r+") { |process| process.gets && yield }
  end

  def assert_overview(page, pid)
    completed(page)

    assert_equal [pid], page.evaluate(PIDS).uniq

    assert_match(/^worker 0\t.*too early$/, page.text("#processes table"))
    page.until_found("a chart") { page.evaluate("!!document.querySelector('.plot canvas')") }

    assert_match(/\ARSS \d+\.\d MiB at /, page.text("#time-text"))
    assert_match(/, ┆ started or forked: 1/, page.text("#time-marks"), "not the worker's own history")
    assert_empty page.evaluate(Browser::STRUCTURE)
    %w[light dark].each do |scheme|
      page.look(width: 375, height: 800, scheme: scheme)

      assert_empty page.evaluate(Browser::CONTRAST), scheme
    end

    assert_operator page.evaluate("document.documentElement.scrollWidth"), :<=, 375
    assert_operator page.evaluate(CUT), :<=, 0, "the verdict is visible on a phone"
    page.look(width: 1280, height: 900)
  end

  def assert_other_pages(page, pid)
    %w[allocator objects profile].each do |name|
      page.click("header a[href*='/#{name}']")

      assert_match(%r{/#{name}\?worker=1\z}, page.evaluate("location.href"))
      assert_equal "Worker 1 #{pid}", page.text("nav.of a[aria-current]")
      assert_empty page.evaluate(Browser::STRUCTURE)
      assert_empty page.evaluate(STRAY).grep_v(/worker=0/)
    end
  end

  # Whichever worker serves the form and the page: the graph is of worker 1, which keeps it.
  def assert_heap_graph(page, pid)
    page.click("header a[href*='/objects']")
    page.push("#main form button")
    page.until_found("a heap graph") { page.text("#heap tbody th") }
    page.click("#heap tbody a")

    assert_match(/would have freed/, page.text(".lede"))
    assert_includes page.text(".lede"), "worker 1, process #{pid}"
    assert_equal "Worker 1 #{pid}", page.text("nav.of a[aria-current]")
    assert_empty page.evaluate(STRAY).grep_v(/worker=0/)
  end

  def assert_purge(page, pid)
    page.click("header a.name")
    completed(page)
    page.click("#levers button[value=trim]")

    assert_match(/returned|RSS grew by/, page.text("h1"))
    assert_match(/process #{pid}\z/, page.text("h2"))
    page.click(".button")

    assert_overview(page, pid)
  end
end
