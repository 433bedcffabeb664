# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/browser"
require_relative "../support/planted_history"
require_relative "../support/web_server"
require "memscope/show/report"
require "memscope/show/report/history"

# The pages in a real browser, from a real server.
class WebBrowserTest < MemscopeTest
  PATHS = ["", "/history", "/objects", "/profile", "/allocator", "/nothing"].freeze
  PHONE = { width: 390, height: 844 }.freeze
  DESK = { width: 1280, height: 900 }.freeze
  # The first row of a heap graph.
  HOLDER = "#heap tbody th"
  # Evaluated in a page: the widths of the parts of the bar, and of the meters of the top rows, in percent.
  WIDTHS = <<~JS
    ["svg.bar .segment", ".tree > li > .row .meter .fill, .tree > li > details > .row .meter .fill"]
      .map((which) => [...document.querySelectorAll(which)].map((one) => parseFloat(one.getAttribute("width"))))
  JS
  # Evaluated in a page: the elements that the keyboard can reach, and the one that has the focus.
  REACHABLE = "document.querySelectorAll('a[href], button, select, summary, [tabindex=\"0\"]')"
  FOCUSED = <<~JS.freeze
    (() => {
      const one = document.activeElement;
      const style = getComputedStyle(one);
      return [[...#{REACHABLE}].indexOf(one), one.value ? one.name + "=" + one.value : one.outerHTML.slice(0, 160),
              style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
    })()
  JS

  class << self
    def server = @server ||= start

    # Another server, with a planted history.
    def of_a_week = @of_a_week ||= start.tap { |server| server.get("/week") }

    private

    def start
      WebServer.new(env: { "OPEN" => "1" }).tap { |server| Minitest.after_run { server.stop } }
    end
  end

  def setup
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    skip_under_sanitizer
    require_relative "../support/heap_graph_proto"
    super
  end

  def server = self.class.server

  def url(path = "") = "http://localhost:#{server.port}/memscope#{path}"

  # Visits a page and checks that nothing is wrong with it.
  def visit(path = "", **options)
    Browser.page(**options) do |page|
      page.go_to(url(path))
      yield page
      complaints = page.complaints.grep_v(/status of #{path == '/nothing' ? 404 : 'none'}/)

      assert_empty complaints, path
      assert_empty page.urls.grep_v(/\A#{url}/), path
    end
  end

  # Waits until the overview has the parts that are fetched later.
  def completed(page) = page.until_found("findings") { page.evaluate("!!document.getElementById('findings')") }

  def drawn(page) = page.until_found("a chart") { page.evaluate("!!document.querySelector('.plot canvas')") }

  # Without a history, the chart's script removes the links to its ranges, once the server has answered.
  def ranged(page)
    page.until_found("a chart, or no ranges") do
      page.evaluate("!!document.querySelector('.plot canvas') || !document.querySelector('#time nav')")
    end
  end

  PATHS.each do |path|
    define_method("test_the_page_at_#{path.delete('/')}") do
      visit(path) do |page|
        completed(page) if path.empty?
        drawn(page) if path == "/history"

        assert_empty page.evaluate(Browser::STRUCTURE)
        [PHONE, DESK].product(%w[light dark]).each do |size, scheme|
          page.look(**size, scheme: scheme)

          assert_empty page.evaluate(Browser::CONTRAST), "contrast, #{scheme}, #{size}"
          assert_operator page.evaluate("document.documentElement.scrollWidth"), :<=, size[:width]
        end
      end
    end
  end

  def test_the_net_catches
    Browser.page do |page|
      page.go_to("http://localhost:#{server.port}/hello")
      page.evaluate("console.error('x')")

      assert(page.until_found("a complaint") { page.complaints.include?("console.error") })
    end
  end

  def test_the_bar_and_the_meters_sum_to_a_hundred_percent
    visit do |page|
      page.evaluate(WIDTHS).each do |widths|
        assert_operator widths.size, :>=, 5
        assert_in_delta 100, widths.sum, 0.01
      end
      completed(page)

      assert_equal "100.0 %", page.text(".total .share")
    end
  end

  # The page shows a recent reading again: the longer the reading took, the longer it is shown.
  def wait_for_a_new_forecast
    30.times do
      shown = nil
      visit(**PHONE) { |page| completed(page).then { shown = page.text("#predicted-trim") } }
      break if shown.include?("MiB")

      sleep 0.5
    end
  end

  def test_a_button_returns_memory_and_the_page_says_how_much
    server.get("/garbage?64")
    before = server.rss_bytes
    wait_for_a_new_forecast
    visit(**PHONE) do |page|
      completed(page)

      assert_match(/\d+\.\d MiB/, page.text("#predicted-trim"))
      page.click("button[value=trim]")
      said = Float(page.text("h1 .figure"))
      fell = (before - server.rss_bytes) / 1_048_576.0

      assert_equal "#{page.text('h1 .figure')} MiB returned", page.text("h1").tr("\n", " ")
      assert_operator said, :>, 5
      assert_in_delta fell, said, 8
      assert_includes page.text("section:last-of-type"), "RSS #{format('%.1f', before / 1_048_576.0)[0..1]}"
    end
  end

  def test_a_button_returns_memory_under_jemalloc
    preload = ChildProcess::ALLOCATORS[:jemalloc]
    env = { "OPEN" => "1", "MALLOC_CONF" => "dirty_decay_ms:-1" } # nothing decays before the click
    WebServer.run(env: env, preload: preload) do |server|
      server.get("/garbage?64")
      Browser.page do |page|
        page.go_to("http://localhost:#{server.port}/memscope?findings=1")
        page.click("button[value=purge]")

        assert_operator Float(page.text("h1 .figure")), :>, 30
        assert_includes page.text("section:last-of-type"), "malloc/dirty"
      end
    end
  end

  def test_the_keyboard_alone_reaches_everything_and_pulls_a_lever
    visit(**DESK) do |page|
      completed(page)
      ranged(page)
      page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
      reachable = page.evaluate("#{REACHABLE}.length")
      stops = Array.new(reachable) { page.press(:Tab).then { page.evaluate(FOCUSED) } }

      assert_equal reachable, stops.uniq.size
      assert_empty stops.reject(&:last), "without a ring around it"
      assert_includes stops.map { |stop| stop[1] }, "lever=gc"
      page.evaluate("document.querySelector('button[name=lever][value=gc]').focus()")
      page.leaving { page.press(:Enter) }

      assert_match(/returned|grew by/, page.text("h1"))
    end
  end

  def test_reading_works_without_javascript
    Browser.page(**PHONE) do |page|
      page.without_script
      PATHS.each do |path|
        page.go_to(url(path))

        assert_match(/[[:alnum:]]/, page.text("h1"))
        refute_match(/javascript/i, page.text("body"))
      end
      page.go_to(url)
      completed(page)

      assert_equal "#{url}?findings=1", page.evaluate("location.href")
      page.push("#levers summary")
      page.click("#levers button[value=gc]")

      assert_match(/returned|grew by/, page.text("h1"))
    end
  end

  def test_rows_are_drawn_over_time
    visit(**DESK) do |page|
      drawn(page)

      time = /\d\d:\d\d:\d\d UTC/

      assert_match(/\ARSS \d+\.\d MiB at #{time}, \+0\.0 MiB since #{time}/, page.text("#time-text"))
      tree, legend = %w[.tree .legend].map { |place| chips(page, place) }
      both = tree.keys & legend.keys # the ledgers are of two moments: a row may be 0.0 in one of them

      assert_operator both.size, :>=, 4
      assert_equal tree.slice(*both), legend.slice(*both)
    end
  end

  # @return [Hash{String => Array<String>}] the mark and the colour of each owner there, by class
  def chips(page, place)
    JSON.parse(page.evaluate(<<~JS)).to_h
      JSON.stringify([...document.querySelectorAll("#{place} .chip")].map((chip) =>
        [chip.className, [chip.textContent, getComputedStyle(chip).backgroundColor]]))
    JS
  end

  # A chart that is not drawn yet for the new width of the page.
  def test_a_chart_never_widens_the_page
    visit("/history") do |page|
      drawn(page)
      page.look(**PHONE)

      assert_equal PHONE[:width], page.evaluate(<<~JS)
        (() => {
          document.querySelector(".uplot").style.width = "1168px";
          return document.documentElement.scrollWidth;
        })()
      JS
    end
  end

  def with_a_week(path, **options)
    Browser.page(**options) do |page|
      page.go_to("http://localhost:#{self.class.of_a_week.port}/memscope#{path}")
      drawn(page)
      yield page

      assert_empty page.complaints
    end
  end

  # Evaluated in a page: how many columns of the canvas have a colour of their own at this height above the axis.
  FILLED = <<~JS
    (() => {
      const canvas = document.querySelector(".plot canvas");
      const { width, height } = canvas;
      const data = canvas.getContext("2d").getImageData(0, Math.round(height * 0.7), width, 1).data;
      return Array.from({ length: width }, (_one, x) => data[4 * x + 3] > 90).filter(Boolean).length / width;
    })()
  JS

  # The text of a reading with the keyboard, against what was planted.
  def assert_planted(text, age)
    total = PlantedHistory.value(:rss, age).fdiv(1_048_576)
    rows = PlantedHistory::ROWS.filter_map do |row|
      bytes = PlantedHistory.value(row, age)
      [Memscope::Terms.series(row), format("%.1f", bytes.fdiv(1_048_576))] if bytes.positive?
    end

    assert_includes text, ": RSS #{format('%.1f', total)} MiB, the rows"
    rows.each { |row| assert_includes text, row.join(" ") }
  end

  def test_a_week_is_drawn_and_read_by_keyboard
    with_a_week("/history?range=7d", **DESK) do |page|
      assert_in_delta 0.85, page.evaluate(FILLED), 0.12
      assert_includes page.text("#time-marks"), "started or forked: 4, ▲ major GCs: 33"
      page.evaluate("document.getElementById('plot').focus()")
      { home: 0, right: 600, end: (7 * 86_400) - 600, left: (7 * 86_400) - 1200 }.each do |key, age|
        page.press(key)

        assert_planted page.evaluate("document.getElementById('time-at').textContent"), age
      end

      assert_equal "1006", page.evaluate("document.getElementById('plot').getAttribute('aria-valuenow')")
      page.press(:tab)

      assert_match(/MiB at .+, \+\d+\.\d MiB since/, page.text("#time-text"))
      assert_empty page.evaluate("document.getElementById('time-at').textContent")
    end
  end

  def test_ranges_are_chosen_in_place_and_stay_in_the_address
    with_a_week("", **DESK) do |page|
      completed(page)
      page.evaluate("document.querySelector('a[data-range=\"12h\"]').focus()")
      page.press(:enter)
      page.until_found("twelve hours") { page.text("#time-marks").include?("GCs: 2") }

      assert_match(/\?range=12h\z/, page.evaluate("location.href"))
      page.go_to(page.evaluate("location.href"))
      page.until_found("the same range") { page.text("#time-marks").to_s.include?("GCs: 2") }
    end
  end

  # Evaluated in a page: from then on, `took` is the milliseconds in which the last chart was built and drawn.
  TIMED = <<~JS
    window.uPlot = new Proxy(window.uPlot, {
      construct(target, given) {
        const began = performance.now();
        setTimeout(() => { window.took = performance.now() - began; });
        return new target(...given);
      } });
  JS

  # Rows that are sampled once a minute hold their value, and end where the process was suspended.
  def test_a_week_on_a_phone_in_the_dark
    with_a_week("/history?range=1h", width: 375, height: 812, scheme: "dark") do |page|
      assert_operator page.evaluate(FILLED), :>, 0.5
      page.evaluate(TIMED)
      page.push("a[data-range='7d']")
      page.until_found("the week") { page.text("#time-marks").include?("GCs: 33") && page.evaluate("window.took") }

      assert_operator page.evaluate("window.took"), :<, 50_000, "milliseconds: it hangs"
      assert_empty page.evaluate(Browser::CONTRAST)
      assert_empty page.evaluate(Browser::STRUCTURE)
      assert_equal 375, page.evaluate("document.documentElement.scrollWidth")
    end
  end

  def test_threads_stop_only_after_a_second_click
    visit do |page|
      completed(page)

      refute page.evaluate("document.querySelector('button[name=lever][value=gc]').checkVisibility()")
      page.push("#levers summary")

      assert_match(/\AAll Ruby threads of the process stop meanwhile: about \d.* (ms|s), or longer/,
                   page.text("#levers .confirm .fine"))
      page.click("#levers button[value=gc]")

      assert_match(/returned|grew by/, page.text("h1"))
    end
  end

  # Without the plugin, the processes of a server do not know each other.
  def test_a_chart_leaves_out_what_another_process_answers
    visit do |page|
      completed(page)
      page.evaluate("document.getElementById('time').dataset.pid = 1")
      page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
      page.until_found("a word about it") { page.text("#time-text").to_s.include?("answered instead of 1") }

      assert_match(/\AProcess #{server.pid} answered instead of 1, \d+ times?: the chart leaves it out\./,
                   page.text("#time-text"))
    end
  end

  def test_a_form_of_another_site_does_nothing
    { "evil.test" => /Sec-Fetch-Site|Origin/, "127.0.0.1" => /Sec-Fetch-Site is "cross-site"/ }.each do |host, reason|
      Browser.page do |page|
        page.go_to("http://#{host}:#{server.port}/elsewhere?#{url('/purge')}")
        page.click("button")

        assert_equal "Forbidden", page.text("h1")
      end

      assert_match reason, server.log
    end
  end

  # From the overview to the constant that holds what has grown.
  def test_two_clicks_lead_to_the_holder_of_a_cache
    server.get("/products?40000")
    visit do |page|
      page.click("a[href$='/objects']")
      page.push("#main form button")
      page.until_found("a holder") { page.text(HOLDER) == "Catalog @products → Hash, holding 40,000 Catalog::Product" }

      assert_empty page.evaluate(Browser::STRUCTURE)
      [PHONE, DESK, { width: 375, height: 812 }].product(%w[light dark]).each do |size, scheme|
        page.look(**size, scheme: scheme)

        assert_empty page.evaluate(Browser::CONTRAST), "contrast, #{scheme}, #{size}"
        assert_operator page.evaluate("document.documentElement.scrollWidth"), :<=, size[:width]
      end
    end
  end

  # Chromium gives a file its name when all of it has arrived.
  def downloaded(page, format, directory)
    page.evaluate("document.querySelector('#format').value = #{format.name.dump}")
    page.push("section[aria-labelledby=dump-title] button")
    name = "memscope-#{server.pid}#{Memscope::Dump::FORMATS.fetch(format).first}"
    page.until_found("download") { Dir[File.join(directory, name)].first }
  end

  # How many objects of a class a trace has.
  def in_trace(path, name)
    parts = HeapGraphProto::Trace.decode(File.binread(path)).packet.filter_map(&:heap_graph)
    type = parts.flat_map { |part| part.types.to_a }.find { |one| one.class_name == name }.id
    parts.sum { |part| part.objects.count { |object| object.type_id == type } }
  end

  # What the server has left of its dumps: directories, and descriptors of files without a name.
  def left_of_dumps
    open = Dir["/proc/#{server.pid}/fd/*"].map { |link| File.symlink?(link) ? File.readlink(link) : "" }
    Dir[File.join(Dir.tmpdir, "memscope-*-#{server.pid}-*")] + open.grep(%r{/memscope-.*/dump})
  end

  def test_a_dump_is_downloaded
    server.get("/products?3000")
    Dir.mktmpdir do |directory|
      visit("/objects") do |page|
        page.save_into(directory)
        lines, trace = %i[objspace perfetto].map { |format| downloaded(page, format, directory) }
        held = Memscope::HeapGraph.read(lines, paths_to: "Catalog::Product")
        products = held.retained.find { |row| row.name == "Catalog::Product" }.count

        assert_operator products, :>=, 3000
        assert_includes held.paths.map(&:to_s), "Catalog @products → Hash → Catalog::Product"
        assert_equal products, in_trace(trace, "Catalog::Product")
        page.until_found("closed file") { left_of_dumps.empty? }
      end
    end
  end

  def test_a_heap_graph_works_without_javascript
    Browser.page do |page|
      page.without_script
      page.go_to(url("/heap?paths_to=Catalog%3A%3AProduct"))
      server.get("/products?1000")
      page.push("#main form button")
      page.until_found("a path") { page.text(HOLDER)&.start_with?("Catalog @products → Hash {Integer}") }
    end
  end

  def test_a_profile
    visit("/profile") do |page|
      page.push("button[value=start]")
      page.until_found("the button that stops it") { page.evaluate("!!document.querySelector('button[value=stop]')") }
      [DESK, PHONE].product(%w[light dark]).each do |size, scheme|
        page.look(**size, scheme: scheme)

        assert_empty page.evaluate(Browser::CONTRAST)
        assert_empty page.evaluate(Browser::STRUCTURE)
        assert_equal size[:width], page.evaluate("document.documentElement.scrollWidth")
      end
      page.push("button[value=stop]")
      page.until_found("what it was") { page.text("h1").to_s.include?("at the end") }
    end
  end
end
