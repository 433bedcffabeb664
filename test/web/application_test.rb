# frozen_string_literal: true

require_relative "../support/web_case"

# The answers to requests that are allowed, well-formed or not.
class WebApplicationTest < WebCase
  # The readings with an address of their own, and the page to which HTML is sent.
  READINGS = { "ledger" => "/memscope", "doctor" => "/memscope?findings=1", "workers" => "/memscope",
               "arenas" => "/memscope/allocator#arenas", "size_classes" => "/memscope/allocator#size_classes",
               "fragmentation" => "/memscope/allocator#fragmentation", "ruby_heap" => "/memscope/allocator#ruby_heap",
               "mappings" => "/memscope/allocator#mappings" }.freeze
  ENDINGS = %w[json txt html].freeze
  PAGES = { "/" => "ledger", "/history" => "history", "/allocator" => nil }.freeze
  HEADERS = {
    "content-security-policy" => "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " \
                                 "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options" => "nosniff", "cache-control" => "no-store", "referrer-policy" => "same-origin"
  }.freeze

  def test_every_page_is_html_json_and_text
    app = application
    PAGES.each do |path, kind|
      html, json, text = [BROWSER, JSON_PLEASE, { "HTTP_ACCEPT" => "text/plain" }].map { |env| get(path, env, on: app) }

      assert_equal [200, 200, 200], [html, json, text].map(&:status), path
      assert_equal %w[text/html application/json text/plain], [html, json, text].map(&:media_type)
      assert_includes html.body, "<main"
      assert_equal([kind, false], [JSON.parse(json.body)["kind"], text.body.empty?])
    end
    assert_empty log.lines
  end

  def test_every_reading_has_an_address_for_json_and_text_and_a_page
    app = application
    READINGS.each do |name, page|
      json, text, html = ENDINGS.map { |ending| get("/#{name}.#{ending}", BROWSER, on: app) }
      kind = name == "doctor" ? "diagnosis" : name

      assert_equal [200, kind], [json.status, JSON.parse(json.body)["kind"]]
      assert_equal [200, "text/plain"], [text.status, text.media_type]
      assert_equal [302, page], [html.status, html["location"]]
    end
    assert_equal "/memscope?worker=1", get("/ledger?worker=1", BROWSER, on: app)["location"]
    assert_equal "/memscope/allocator?arena=0#size_classes", get("/size_classes?arena=0", BROWSER, on: app)["location"]
  end

  def test_json_gives_the_reading_again
    ledger = Memscope::Ledger.from_h(JSON.parse(get("/ledger.json").body))

    assert_equal ledger.rss_bytes, ledger.rows.sum(&:bytes)
    assert_instance_of Memscope::Diagnosis, Memscope::Diagnosis.from_json(get("/doctor.json").body)
  end

  def test_every_response_carries_the_headers_of_a_page_that_trusts_nobody
    app = application
    closed = application(open: false)
    responses = [get("/", on: app), get("/arenas.json", on: app), get("/nothing", on: app), get("/purge", on: app),
                 request("OPTIONS", "/", on: app), get("/", on: closed), post({}, on: app)]

    responses.each { |response| assert_equal HEADERS, response.headers.to_h.slice(*HEADERS.keys) }
  end

  def test_pages_have_no_inline_style_or_script_and_no_foreign_address
    app = application
    ["/", "/?findings=1", "/history", "/objects", "/profile", "/allocator", "/nothing"].each do |path|
      body = get(path, BROWSER, on: app).body

      refute_match(/\sstyle=|<style|javascript:|\son\w+=/, body)
      refute_match(%r{<script[^>]*>[^<]|(?:src|href|action)="(?!/memscope|#)|https?://}, body)
    end
  end

  def test_what_comes_from_outside_is_escaped
    mapping = { start: 4096, end: 8192, resident_bytes: 4096, permissions: "rw-p", rows: { "<b>": 4096 },
                name: %(/tmp/"><script>alert('1')<) }
    app = application(processes: counting(mappings: lambda {
      Memscope::Mappings.capture({ rss_bytes: 4096, source: :pagemap, unmapped_bytes: 0, mappings: [mapping],
                                   reasons: {}, cost: { tier: :T2, wall_us: 1, gvl_us: 1, scratch_bytes: 0 } })
    }).first)
    body = get("/allocator", { "SCRIPT_NAME" => %(/"><script>) }, on: app).body

    refute_match(/<script>|<b>/, body.sub(/<p class="lede">.*/, ""))
    assert_includes body, "&lt;b&gt;  &quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;"
  end

  def test_paths_that_are_none
    app = application
    ["/../etc/passwd", "/assets/../web.rb", "/assets/..%2fweb.rb", "/assets/%2e%2e/web.rb", "/assets/%2e%2e%2fweb.rb",
     "/assets/....//web.rb", "/assets//etc/passwd", "/assets/", "/assets", "/assets/memscope.css%00.png", "/arenas%00",
     "/arenas.json.json", "/arenas.exe", "/arenas/", "/ARENAS", "/.json", "/arenas;x=1", "/%C0%AE%C0%AE/",
     "/#{'a' * 9000}", "/assets/application.rb", "/views/layout.erb"].each do |path|
      response = get(path, on: app)

      assert_equal 404, response.status, path
      refute_match(/root:|module Memscope|doctype html.*erb/m, response.body)
    end
  end

  def test_paths_as_a_server_that_decodes_hands_them_over
    app = application

    ["/assets/../../web.rb", "/arenas\0", "/\xff\xfe".b, "arenas", "/assets/memscope.css\0", "\0", "/..",
     "/assets/\\..\\web.rb", "*", "//arenas"].each do |path|
      assert_equal 404, get("/", { "PATH_INFO" => path }, on: app, lint: false).status, path.inspect
    end
  end

  def test_the_mount_point_itself_is_the_overview
    assert_equal 200, get("/history", { "PATH_INFO" => "" }).status
  end

  def test_verbs
    app = application
    paths = %w[/ /arenas /metrics /assets/memscope.css]
    paths.product(%w[POST PUT PATCH DELETE TRACE CONNECT FROB]).each do |path, verb|
      response = request(verb, path, { "PATH_INFO" => path }, on: app, lint: false)

      assert_equal [405, "GET, HEAD"], [response.status, response["allow"]], "#{verb} #{path}"
    end

    assert_equal 405, request("GET\r\nX: 1", "/arenas", on: app, lint: false).status
  end

  def test_an_action_is_a_post_and_nothing_else
    app = application
    %w[GET HEAD PUT DELETE].each do |verb|
      response = request(verb, "/purge?lever=gc", OWN, on: app)

      assert_equal [405, "POST"], [response.status, response["allow"]]
    end
  end

  def test_options_says_what_there_is
    { "/" => "GET, HEAD", "/purge" => "POST" }.each do |path, verbs|
      response = request("OPTIONS", path)

      assert_equal [204, verbs, ""], [response.status, response["allow"], response.body]
    end

    assert_nil request("OPTIONS", "/", { "HTTP_ORIGIN" => "http://evil.test" })["access-control-allow-origin"]
  end

  # Both use the same reading, since the clock stands still.
  def test_head_is_get_without_the_body
    app = application(processes: Memscope::Web::Processes.new(clock: -> { 0.0 }))
    %w[/arenas.json /assets/memscope.css /nothing].each do |path|
      head = request("HEAD", path, OWN, on: app)
      full = request("GET", path, OWN, on: app)

      assert_empty head.body
      assert_equal full.headers.to_h, head.headers.to_h
    end
  end

  # The reading is taken while all other threads wait for it.
  def test_two_hundred_at_once_take_one_reading
    threads = nil
    readings, counts = counting(clock: -> { 0.0 }, ledger: lambda do
      sleep 0.01 until threads&.-([Thread.current])&.all?(&:stop?)
      Memscope.ledger
    end)
    app = application(processes: readings)
    threads = Array.new(200) { Thread.new { get("/ledger.json", on: app).status } }

    assert_equal [200], threads.map(&:value).uniq
    assert_equal 1, counts[:ledger]
  end

  def test_a_reading_that_fails_fails_for_all_who_wait_and_is_not_taken_again_at_once
    readings, counts = counting(clock: -> { 0.0 }, ledger: -> { raise IOError, "gone: /proc/self/secret" })
    app = application(processes: readings)
    responses = Array.new(3) { get("/ledger.json", on: app) }

    assert_equal 1, counts[:ledger]
    responses.each do |response|
      assert_equal [500, "This page failed. See the application log."],
                   [response.status, JSON.parse(response.body)["error"]]
    end
    assert_match(/failed: gone: .proc.self.secret \(IOError\) at /, log.lines.first)
  end

  def test_after_a_purge_all_is_read_anew
    readings, counts = counting(ledger: -> { Memscope.ledger })
    app = application(processes: readings)
    get("/ledger.json", on: app)
    post({ "lever" => "gc" }, on: app)
    get("/ledger.json", on: app)

    assert_equal 2, counts[:ledger]
  end

  def test_metrics
    app = application(processes: counting(metrics: -> { "memscope_rss_bytes 1\n" }).first)
    response = get("/metrics", { "HTTP_ACCEPT" => "application/openmetrics-text" }, on: app)

    assert_equal "text/plain; version=0.0.4; charset=utf-8", response["content-type"]
    assert_equal "memscope_rss_bytes 1\n", response.body
  end
end
