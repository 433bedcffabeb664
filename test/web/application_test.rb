# frozen_string_literal: true

require_relative "../support/charts"
require_relative "../support/histories"
require_relative "../support/web_case"

# The answers to requests that are allowed, well-formed or not.
class WebApplicationTest < WebCase
  KINDS = { "/" => "ledger", "/ledger" => "ledger", "/doctor" => "diagnosis", "/arenas" => "arenas",
            "/size_classes" => "size_classes", "/ruby_heap" => "ruby_heap", "/mappings" => "mappings",
            "/history" => "history",
            **(Memscope.respond_to?(:workers) ? { "/workers" => "workers" } : {}) }.freeze
  HEADERS = {
    "content-security-policy" => "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " \
                                 "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options" => "nosniff", "cache-control" => "no-store", "referrer-policy" => "same-origin"
  }.freeze
  # The Accept header of a browser.
  BROWSER = { "HTTP_ACCEPT" => "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8" }.freeze
  # The headers of a browser that sends no Sec-Fetch-Site, and of one that does not send Origin either.
  ORIGIN = ->(origin) { { "HTTP_SEC_FETCH_SITE" => nil, "HTTP_ORIGIN" => origin } }
  NEITHER = ORIGIN[nil].freeze
  BASIC = { "HTTP_AUTHORIZATION" => "Basic #{['ops:sesame'].pack('m0')}" }.freeze
  JSON_PLEASE = { "HTTP_ACCEPT" => "application/json" }.freeze

  # Cheap readings, and how often each was taken.
  def counting(clock: nil, own_work: nil, **kinds)
    counts = Hash.new(0)
    mutex = Mutex.new
    known = kinds.to_h do |kind, read|
      [kind, ->(*arguments) { mutex.synchronize { counts[kind] += 1 }.then { read.call(*arguments) } }]
    end
    [Memscope::Web::Readings.new(known, **{ clock: clock, own_work: own_work }.compact), counts]
  end

  def test_every_page_is_html_json_and_text
    app = application
    KINDS.each do |path, kind|
      html, json, text = [BROWSER, JSON_PLEASE, { "HTTP_ACCEPT" => "text/plain" }].map { |env| get(path, env, on: app) }

      assert_equal [200, 200, 200], [html, json, text].map(&:status), path
      assert_equal %w[text/html application/json text/plain], [html, json, text].map(&:media_type)
      assert_includes html.body, "<main"
      assert_equal kind, JSON.parse(json.body)["kind"]
      refute_empty text.body
    end
    assert_empty log.lines
  end

  def test_the_menu_has_only_pages_with_something_to_show
    menu = ->(path) { get(path, BROWSER).body[%r{<nav aria-label="Pages">.*?</nav>}m].scan(/>([^<>\n]+)</).flatten }
    without = Memscope.allocator.name == :jemalloc ? ["Workers"] : ["Size classes", "Workers"]

    assert_equal without, Memscope::Web::View::PAGES.values - menu["/arenas"]
    assert_includes menu["/size_classes"], "Size classes"
  end

  def test_an_owner_has_one_number_on_all_pages
    page = get("/", BROWSER).body
    labels = JSON.parse(CGI.unescapeHTML(page[/data-labels="([^"]+)"/, 1])).keys
    chips = page.scan(%r{<span class="chip row-(\w+)"[^>]*>(\d+)</span>}).to_h

    assert_operator chips.size, :>=, 4
    chips.each { |id, number| assert_equal labels.index(id) + 1, number.to_i, id }
  end

  def test_json_gives_the_reading_again
    ledger = Memscope::Ledger.from_h(JSON.parse(get("/ledger.json").body))

    assert_equal ledger.rss_bytes, ledger.rows.sum(&:bytes)
    assert_instance_of Memscope::Diagnosis, Memscope::Diagnosis.from_json(get("/doctor.json").body)
  end

  def test_the_ending_names_the_format_before_the_header_does
    app = application

    assert_equal "application/json", get("/arenas.json", BROWSER, on: app).media_type
    assert_equal "text/plain", get("/arenas.txt", JSON_PLEASE, on: app).media_type
    assert_equal "text/html", get("/arenas.html", JSON_PLEASE, on: app).media_type
  end

  def test_accept
    app = application

    { nil => "text/html", "*/*" => "text/html", "application/*" => "application/json", "text/*" => "text/html",
      "text/plain, text/html;q=0.5" => "text/plain", "text/html;q=0, */*" => "application/json",
      "image/png" => "text/html",
      "application/json;q=0.4,text/plain;q=0.5" => "text/plain", ";;;,,,q=" => "text/html", "," * 5000 => "text/html",
      "application/json;q=nan" => "text/html", "\xff\xfe/*".b => "text/html" }.each do |accept, type|
      assert_equal type, get("/arenas", { "HTTP_ACCEPT" => accept }, on: app).media_type, accept.inspect
    end
  end

  def test_every_response_carries_the_headers_of_a_page_that_trusts_nobody
    app = application
    closed = application(rails_env: "production")
    responses = [get("/", on: app), get("/arenas.json", on: app), get("/nothing", on: app), get("/purge", on: app),
                 request("OPTIONS", "/", on: app), get("/", on: closed), post({}, on: app)]

    responses.each { |response| assert_equal HEADERS, response.headers.to_h.slice(*HEADERS.keys) }
  end

  def test_pages_have_no_inline_style_or_script_and_no_foreign_address
    app = application
    [*KINDS.keys, "/nothing"].each do |path|
      body = get(path, BROWSER, on: app).body

      refute_match(/\sstyle=|<style|javascript:|\son\w+=/, body)
      refute_match(%r{<script[^>]*>[^<]|(?:src|href|action)="(?!/memscope|#)|https?://}, body)
    end
  end

  def test_what_comes_from_outside_is_escaped
    app = application(readings: counting(mappings: lambda {
      mapping = { start: 4096, end: 8192, resident_bytes: 4096, permissions: "rw-p", rows: { "<b>": 4096 },
                  name: %(/tmp/"><script>alert('1')</script>) }
      Memscope::Mappings.capture({ rss_bytes: 4096, source: :pagemap, unmapped_bytes: 0, mappings: [mapping],
                                   reasons: {}, cost: { tier: :T2, wall_us: 1, gvl_us: 1, scratch_bytes: 0 } })
    }).first)
    body = get("/mappings", { "SCRIPT_NAME" => %(/"><script>) }, on: app).body

    refute_match(/<script>|<b>/, body)
    assert_includes body, "/tmp/&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"
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
    assert_equal 200, get("/ledger", { "PATH_INFO" => "" }).status
  end

  def test_queries
    app = application
    { "arena=0" => 200, "arena=9999" => 400, "arena=999999999999" => 400, "arena=-1" => 400,
      "arena=0x10" => 400, "arena=%FF" => 400,
      "arena=%zz" => 400, "%" => 200, "arena=1%00" => 400, "&&&=&;" => 200, "x[y][z]=1&x=2" => 200, "arena" => 200,
      "arena=" => 200, "a=#{'b' * 1100}" => 414, "arena=1#{'&a' * 5000}" => 414 }.each do |query, status|
      response = get("/size_classes", { "QUERY_STRING" => query, **JSON_PLEASE }, on: app)

      assert_equal status, response.status, query
      refute_match(/Memscope|\.rb/, response.body) unless status == 200
    end
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
      response = request(verb, "/purge?lever=gc&token=#{TOKEN}", OWN, on: app)

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
    app = application(readings: Memscope::Web::Readings.new(clock: -> { 0.0 }))
    %w[/arenas.json /assets/memscope.css /nothing].each do |path|
      head = request("HEAD", path, OWN, on: app)
      full = request("GET", path, OWN, on: app)

      assert_empty head.body
      assert_equal full.headers.to_h, head.headers.to_h
    end
  end

  def test_assets_are_found_by_the_name_of_their_content
    body = get("/nothing").body
    app = application
    body.scan(%r{(?:href|src)="/memscope(/assets/[^"]+)"}).flatten.each do |path|
      response = get(path, on: app)

      assert_equal 200, response.status
      assert_match(/immutable/, response["cache-control"])
    end
  end

  # The colours come from a file of their own.
  def test_every_colour_of_the_style_is_there
    style = get("/assets/memscope.css").body

    assert_includes style.scan(/var\((--[\w-]+)/).flatten, "--malloc"
    assert_empty style.scan(/var\((--[\w-]+)/).flatten.uniq - style.scan(/(--[\w-]+):/).flatten
  end

  def test_the_token_is_given_once_and_kept
    first = get("/doctor")
    cookie = first["set-cookie"]

    assert_match(%r{\Amemscope_token=[\w-]{43}; path=/memscope; httponly; samesite=strict\z}, cookie)
    assert_includes first.body, %(name="token" value="#{cookie[/=([\w-]{43})/, 1]}")
    assert_match(/; secure\z/, get("/nothing", { "rack.url_scheme" => "https" })["set-cookie"])
    second = get("/doctor", { "HTTP_COOKIE" => "other=1; memscope_token=#{TOKEN}; x" })

    assert_nil second["set-cookie"]
    assert_includes second.body, TOKEN
  end

  def test_malformed_cookies_are_none
    app = application
    ["memscope_token=#{'<' * 43}", "memscope_token=", "memscope_token=#{TOKEN}x", "xmemscope_token=#{TOKEN}", "%",
     "=" * 9000, "\xff".b, "memscope_token=%00", ";" * 9000, "memscope_token=#{'a' * 100_000}"].each do |cookie|
      refute_nil get("/nothing", { "HTTP_COOKIE" => cookie }, on: app)["set-cookie"], cookie[0, 50]
      assert_equal 403, post({ "lever" => "gc" }, { **OLD, "HTTP_COOKIE" => cookie }, on: app).status
    end
  end

  def test_a_purge_says_what_it_returned
    app = application
    response = post({ "lever" => "gc" }, { **OWN, **JSON_PLEASE }, on: app)
    result = Memscope::Purge::Result.from_h(JSON.parse(response.body))

    assert_equal 200, response.status
    assert_equal [:gc], result.levers.map(&:name)
    assert_equal result.returned_bytes, result.rows.values.sum
    assert_match(/MiB returned|Nothing changed|grew by/,
                 post({ "lever" => "gc" }, { **OWN, **BROWSER }, on: app).body)
    assert_match(/RSS .* before/, post({ "lever" => "gc" }, { **OWN, "HTTP_ACCEPT" => "text/plain" }, on: app).body)
  end

  def test_a_lever_that_is_refused_says_why
    app = application
    refused = Memscope::Purge.missing.slice(:compact).compact
    page = get("/doctor", BROWSER, on: app).body

    assert_equal refused.empty?, page.include?('name="lever" value="compact"')
    refused.each_value { |reason| assert_includes page, "<p class=\"fine\">#{reason}.</p>" }
    assert_equal refused.empty? ? 200 : 400, post({ "lever" => "compact", "dry_run" => "1" }, OWN, on: app).status
  end

  def test_a_purge_can_be_predicted_only
    response = post({ "lever" => "all", "dry_run" => "1" }, { **OWN, **JSON_PLEASE })

    assert JSON.parse(response.body)["dry_run"]
    assert_nil JSON.parse(response.body)["after"]
  end

  # Processes that do not know each other may serve the page and then its form.
  def test_no_other_process_than_that_of_the_page_is_changed
    app = application
    gc = { "do" => "gc" }
    { "/purge" => { "lever" => "gc" }, "/doctor" => gc, "/profile" => gc }.each do |path, form|
      collected = GC.count
      refused = GC.disable.then { post({ **form, "pid" => "1" }, path: path, on: app) }

      assert_equal [409, collected], [refused.status, GC.count], path
      assert_includes refused.body, "Nothing was done: the page was of process 1, but the request reached this " \
                                    "process (pid #{Process.pid})."
      GC.enable

      assert_equal 200, post({ **form, "pid" => Process.pid.to_s }, path: path, on: app).status
    end
  ensure
    GC.enable
  end

  def test_a_purge_says_that_it_runs_before_it_does
    env = Rack::MockRequest.env_for("/purge", method: "POST", params: { lever: "gc" }).merge(OWN)
    status, headers, body = application.call(env)
    collected = GC.count
    parts = body.to_enum.map { |part| [part, GC.count] }

    assert_equal [200, "no", nil], [status, headers["x-accel-buffering"], headers["content-length"]]
    assert_includes parts.first[0], "Purging 1 process."
    assert_operator parts.last[1], :>, collected
    assert_match(/MiB returned|(?:RSS|Private memory) grew by/, parts.last[0])
    assert_match(%r{<html.*<main.*</main>.*</html>}m, parts.map(&:first).join)
  end

  def test_garbage_is_collected_before_the_overview_is_read
    shown = post({ "do" => "gc" }, { **OWN, **BROWSER }, path: "/doctor")

    assert_match(/Garbage collected: .*threads of process #{Process.pid} stopped for \d/, shown.body)
    assert_includes shown.body, "findings-title"
    assert_equal 400, post({ "do" => "dance" }, path: "/doctor").status
  end

  # The diagnosis is another request: by the script, by the refresh of a browser without scripts, or by a link.
  def test_the_overview_is_painted_by_a_plain_ledger
    readings, counts = counting(ledger: -> { Memscope.ledger }, diagnosis_with_forecast: -> { flunk })
    page = get("/", BROWSER, on: application(readings: readings)).body

    assert_equal({ ledger: 1 }, counts)
    assert_includes page, '<noscript><meta http-equiv="refresh" content="0; url=/memscope/doctor"></noscript>'
    assert_includes page, '<main id="main" tabindex="-1" data-rest="/memscope/doctor">'
    assert_includes page, '<a class="fine" href="/memscope/doctor">'
  end

  # The forecast is based on the ledger of the diagnosis.
  def test_a_finding_and_the_lever_that_it_names_predict_the_same
    diagnosed = Memscope::Web::Readings.new.fetch(:diagnosis_with_forecast)

    assert_same diagnosed.diagnosis.evidence.ledger, diagnosed.forecast.before
    trim = diagnosed.forecast.levers.find { |lever| lever.name == :trim }
    malloc = diagnosed.diagnosis.evidence.ledger.rows.find { |row| row.id == :malloc }

    assert_equal malloc.detail[:trimmable_bytes], trim&.predicted_bytes
  end

  # Also where :compact can run, whose forecast needs the heap: one ledger and one child serve all of it. Each lever is
  # predicted alone, as its button runs it alone: gc as in a dry run, trim without the garbage.
  both_allocators "the overview forks once" do |preload|
    skip_under_sanitizer
    script = <<~RUBY
      Memscope::Web
      GC.start
      GC.disable
      Thread.new { 10_000.times.map { |number| number.to_s * 500 } && nil }.join
      walks = Hash.new(0)
      Memscope::Purge::Compaction.define_singleton_method(:missing) { nil }
      names = %i[object_blocks ruby_heap ledger]
      readings = Memscope::Web::Readings.new
      TracePoint.new(:c_call) { |call| walks[call.method_id] += 1 if names.include?(call.method_id) }.enable do
        readings.fetch(:diagnosis_with_forecast)
      end
      diagnosed = readings.fetch(:diagnosis_with_forecast)
      page = Memscope::Web::Pages::OfDiagnosis.allocate.tap { |one| one.instance_variable_set(:@diagnosed, diagnosed) }
      puts JSON.generate([diagnosed.forecast.levers.map(&:to_h), page.returnable,
                          Memscope.purge(:gc, dry_run: true).levers.first.to_h, walks])
    RUBY
    levers, returnable, dry_run, walks =
      child_json(script, requires: %w[json memscope], bundler: true, preload: preload)
    gc = levers.find { |lever| lever["name"] == "gc" }
    others = levers.reject { |lever| lever["name"] == "gc" }

    assert_equal({ "object_blocks" => 1 }, walks)
    assert_includes levers.map { |lever| lever["name"] }, "compact"
    %w[predicted_bytes predicted_max_bytes].each { |bound| assert_in_delta dry_run[bound], gc[bound], 1 << 20 }
    assert_operator returnable.last, :>, (15 << 20) + others.sum { |lever| lever["predicted_max_bytes"].to_i }
  end

  # A badge and a sentence for each verdict without problems, the same sentence as in the text.
  def test_the_page_tells_the_verdicts_apart
    garbage = { ledger: { garbage_max_bytes: 192 << 20 },
                snapshot: { gc: { **Charts.snapshot(Charts.glibc)[:gc], oldmalloc_increase_bytes: 65 << 20 } } }
    { {} => ["✓ No problems found", "No problems found. RSS 188.0 MiB."],
      garbage => ["● No verdict yet: collect garbage first", "No verdict yet: up to 192.0 MiB of what is in use"],
      { process_memory: { swap_bytes: nil } } => ["● No problems found, but not all was checked", "could not be made"],
      { ledger: { rows: [], rss_bytes: nil, source: :none, held_by_objects_bytes: nil } } =>
        ["<h1>No reading available</h1>", "No verdict: the RSS of this process is unknown."] }
      .each do |chart, (badge, sentence)|
        diagnosis = Memscope::Doctor.diagnose(Charts.evidence(**chart))
        body = page_of(diagnosis)

        assert_includes body, badge
        assert_includes body, sentence
        assert_includes diagnosis.to_s.gsub(/\s+/, " "), sentence
        assert_equal diagnosis.verdict == :none, body.include?("badge good")
      end
  end

  # What the parent's own threads must run is not a command line.
  def test_the_page_has_the_remedies_that_the_text_has
    parent = Memscope::Doctor.diagnose(Charts.evidence(malloc: Charts.jemalloc(tcache: 40), ledger: { pid: 7 }))
    forked = { forked: true, parent_pid: 7 }
    diagnosis = Memscope::Doctor.diagnose(Charts.evidence(malloc: Charts.jemalloc, environment: forked), since: parent)

    assert_match(/Memscope\.purge\(:tcache\) # in the parent/, diagnosis.first.remedy)
    assert_includes page_of(diagnosis), "<code>Memscope.purge(:tcache) # in the parent"
  end

  # Its remedy has no cost.
  def test_the_page_of_a_leak
    leak = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
    diagnosis = Memscope::Doctor.diagnose(Charts.evidence(verdict: leak))
    body = page_of(diagnosis)

    assert_includes diagnosis.map(&:id), :leak
    assert_match(/leak of native memory: \+\d/, body)
    assert_includes body, "<code>#{leak.remedy}</code>"
  end

  # The table of processes says "too early" of a young one, and no rate.
  def test_the_page_of_a_young_process
    early = Histories.judge(0.1) { |hour| { malloc: 900 * hour, malloc_in_use: 900 * hour } }
    young = Memscope::Workers.of([Memscope.workers.first.with(verdict: early)], since: Memscope::Cost.now)
    readings, = counting(workers: -> { young })
    body = get("/workers", BROWSER, on: application(readings: readings)).body

    assert_match(/<td title="Too early to tell: one value so far, .* UTC\)[^"]*">too early</, body)
    refute_match(%r{MiB/h}, body)
  end

  # The last button runs what does no harm; the others have buttons of their own.
  def test_the_page_says_what_the_last_button_leaves_out
    native = Memscope.const_get(:Native)
    actual = native.method(:gc_pause_ms)
    native.define_singleton_method(:gc_pause_ms) { 650.0 }
    forecast = Memscope::Purge.run([], arena: nil, dry_run: true, settle: 0)
    body = page_of(Memscope::Doctor.diagnose(Charts.evidence), forecast)

    assert_includes body, "Collect garbage is left out: it would stop Ruby for about 650 ms"
    assert_match(/Collect garbage ….*stop meanwhile: about 650 ms, or longer on a busy machine/m, body)
    refute_match(/Run in this order: .*Collect garbage/, body)
  ensure
    native.define_singleton_method(:gc_pause_ms, actual)
  end

  def page_of(diagnosis, forecast = Memscope::Purge.run([:gc], arena: nil, dry_run: true, settle: 0))
    diagnosed = Memscope::Calls::Diagnosed.new(diagnosis, forecast)
    readings, = counting(diagnosis_with_forecast: -> { diagnosed }, verdict: -> { Memscope.verdict })
    get("/doctor", BROWSER, on: application(readings: readings)).body
  end

  def test_one_thread_at_a_time_takes_a_costly_reading
    running = most = 0
    slow = lambda do
      most = [most, running += 1].max
      sleep 0.05
      running -= 1
    end
    readings, counts = counting(arenas: slow, mappings: slow, diagnosis_with_forecast: slow)
    counting_kinds = %i[arenas mappings diagnosis_with_forecast]
    counting_kinds.map { |kind| Thread.new { readings.fetch(kind) } }.each(&:join)

    assert_equal [1, 3], [most, counts.size]
  end

  def test_forms_that_are_none
    app = application

    { { "lever" => "rm -rf" } => 400, {} => 400, { "lever" => "" } => 400, { "lever" => "gc\0" } => 400,
      { "lever" => "x" * 5000 } => 413, { "lever" => "\xff".b } => 400 }.each do |fields, status|
      assert_equal status, post(fields, on: app).status, fields.inspect[0, 80]
    end
    body = ->(text, **env) { request("POST", "/purge", { input: text, **OLD, **env.transform_keys(&:name) }, on: app) }

    assert_equal 415, body.call("{}", CONTENT_TYPE: "application/json").status
    assert_equal 415, body.call("x", CONTENT_TYPE: "multipart/form-data; boundary=x").status
    assert_equal 400, body.call("token=%00").status
    assert_equal 403, body.call("token=%FF&%&=%zz").status
    assert_equal 403, body.call("").status
    assert_equal 413, body.call("x" * 100_000).status
  end

  def test_a_form_that_a_middleware_has_read_already
    require "rack/method_override"
    app = Rack::MethodOverride.new(application)

    assert_equal 200, post({ "lever" => "gc" }, on: app).status
    assert_equal 403, post({ "lever" => "gc", "token" => "" }, OLD, on: app).status
    assert_equal 413, post({ "lever" => "x" * 5000 }, on: app).status
  end

  def test_lengths_that_are_none
    app = application
    { "-1" => 400, "1e9" => 400, "9" * 30 => 400, "99999999999" => 413, "" => 403 }.each do |length, status|
      env = { **OLD, "CONTENT_LENGTH" => length, "rack.input" => StringIO.new("lever=gc") }

      assert_equal status, request("POST", "/purge", env, on: app, lint: false).status, length
    end
    unread = Object.new

    assert_equal 413, request("POST", "/purge", { **OWN, "CONTENT_LENGTH" => "5000", "rack.input" => unread },
                              on: app, lint: false).status
    assert_equal 403, request("POST", "/purge", { **OLD, "rack.input" => nil }, on: app, lint: false).status
  end

  def test_posts_from_elsewhere_are_refused
    app = application
    { { "HTTP_SEC_FETCH_SITE" => "cross-site" } => /Sec-Fetch-Site is "cross-site"/,
      { "HTTP_SEC_FETCH_SITE" => "same-site" } => /Sec-Fetch-Site/, { "HTTP_SEC_FETCH_SITE" => "none" } => /Sec-Fetch/,
      { "HTTP_SEC_FETCH_SITE" => "" } => /Sec-Fetch/,
      ORIGIN["http://evil.test"] => /Origin "http:..evil.test" is not Host "localhost:9292"/,
      ORIGIN["null"] => /Origin "null"/, ORIGIN["http://localhost"] => /Origin/,
      ORIGIN["http://localhost:9292.evil.test"] => /Origin/, ORIGIN["ftp://localhost:9292"] => /Origin/,
      ORIGIN["localhost:9292"] => /Origin/, ORIGIN[""] => /Origin/,
      { **NEITHER, "HTTP_COOKIE" => nil } => /no Sec-Fetch-Site, no Origin and no cookie with a token/,
      { **NEITHER, "HTTP_COOKIE" => nil, **BASIC } => /no Sec-Fetch-Site, no Origin and no cookie with a token/,
      { **NEITHER, "HTTP_COOKIE" => "memscope_token=#{'u' * 43}" } => /the form's token is not/ }.each do |env, reason|
      response = post({ "lever" => "gc" }, { **OWN, **env }, on: app)

      assert_equal 403, response.status, env.inspect
      assert_includes response.body, "Invalid or expired form token. Reload the page and retry."
      assert_match reason, log.lines.pop
    end
  end

  # Sec-Fetch-Site takes precedence over Origin, and Origin over the token.
  def test_the_first_sign_decides
    app = application
    stranger = { "HTTP_SEC_FETCH_SITE" => "cross-site" }
    foreign = { "HTTP_SEC_FETCH_SITE" => nil, "HTTP_ORIGIN" => "http://evil.test" }

    nothing = { **foreign, "HTTP_ORIGIN" => "http" }

    [stranger, foreign, nothing].each do |env|
      assert_equal 403, post({ "lever" => "gc" }, { **OWN, **env }, on: app).status
    end
    [{}, { "HTTP_SEC_FETCH_SITE" => nil }].each do |env|
      assert_equal 200, post({ "lever" => "gc" }, { **OWN, **env, "HTTP_COOKIE" => nil }, on: app).status
    end
  end

  def test_posts_from_its_own_pages_are_done
    app = application

    [{}, { "HTTP_SEC_FETCH_SITE" => nil }, { "HTTP_ORIGIN" => nil }, NEITHER, ORIGIN["https://LOCALHOST:9292"],
     { **ORIGIN["http://localhost"], "HTTP_HOST" => "localhost:80" },
     { **ORIGIN["https://localhost:443"], "HTTP_HOST" => "localhost" }].each do |env|
      assert_equal 200, post({ "lever" => "gc" }, { **OWN, **env }, on: app).status, env.inspect
    end
  end

  def test_a_tool_may_purge_with_credentials_of_its_own
    app = application(username: "ops", password: "sesame")
    tool = { **OWN, "HTTP_ORIGIN" => nil, "HTTP_SEC_FETCH_SITE" => nil, **basic("ops", "sesame") }

    assert_equal 200, post({ "lever" => "gc" }, tool, on: app).status
    assert_equal 403, post({ "lever" => "gc" }, { **tool, "HTTP_COOKIE" => nil }, on: app).status
  end

  def test_a_form_without_a_token_is_refused
    assert_equal 403, post({ "lever" => "gc", "token" => "" }, OLD).status
    assert_equal 403, post({ "lever" => "gc", "token" => "#{TOKEN}\n" }, OLD).status
  end

  def test_actions_can_be_switched_off
    app = application(actions: false)

    assert_equal 403, post({ "lever" => "gc" }, on: app).status
    refute_match(/<button/, get("/doctor", on: app).body)
  end

  def test_two_purges_at_once_are_one
    app = application
    Memscope::Purge.with_exclusive_purge do
      program, person = [JSON_PLEASE, BROWSER].map do |env|
        Thread.new { post({ "lever" => "gc" }, { **OWN, **env }, on: app) }.value
      end

      assert_equal [409, "1"], [program.status, program["retry-after"]]
      assert_includes person.body, "Another thread of this process is purging or tuning"
    end
  end

  # The reading is taken while all other threads wait for it.
  def test_two_hundred_at_once_take_one_reading
    threads = nil
    readings, counts = counting(clock: -> { 0.0 }, ledger: lambda do
      sleep 0.01 until threads&.-([Thread.current])&.all?(&:stop?)
      Memscope.ledger
    end)
    app = application(readings: readings)
    threads = Array.new(200) { Thread.new { get("/ledger.json", on: app).status } }

    assert_equal [200], threads.map(&:value).uniq
    assert_equal 1, counts[:ledger]
  end

  def test_a_reading_rests_ten_times_as_long_as_it_took
    now = 0.0
    { 0.01 => 1.0, 0.25 => 2.5, 7.0 => 30.0 }.each do |seconds, rest|
      readings, counts = counting(clock: -> { now }, ledger: -> { now += seconds })

      readings.fetch(:ledger)
      now += rest - 0.125
      readings.fetch(:ledger)

      assert_equal 1, counts[:ledger]
      now += 0.25
      readings.fetch(:ledger)

      assert_equal 2, counts[:ledger]
    end
  end

  # Waiting for a late master does not count as work, so it is asked again soon: another worker may have newer numbers.
  def test_what_workers_have_told_rests_ten_times_as_long_as_it_was_work_to_ask
    now = work = 0.0
    %i[workers metrics].each do |kind|
      readings, counts = counting(clock: -> { now }, own_work: -> { work }, kind => lambda do
        now += 2
        work += 0.125
      end)
      readings.fetch(kind)
      now += 1.125
      readings.fetch(kind)

      assert_equal 1, counts[kind]
      now += 0.25
      readings.fetch(kind)

      assert_equal 2, counts[kind]
    end
  end

  # Each look at the clock advances it; every caller looks once.
  def test_those_who_wait_for_what_workers_have_told_share_it
    now = Queue.new
    clock = -> { (now << nil).size.to_f }
    readings, counts = counting(clock: clock, own_work: -> { 0.0 }, workers: -> { sleep 0.01 until now.size >= 20 })
    Array.new(20) { Thread.new { readings.fetch(:workers) } }.each(&:join)

    assert_equal 1, counts[:workers]
    readings.fetch(:workers)

    assert_equal 2, counts[:workers]
  end

  def test_a_reading_that_fails_fails_for_all_who_wait_and_is_not_taken_again_at_once
    readings, counts = counting(clock: -> { 0.0 }, ledger: -> { raise IOError, "gone: /proc/self/secret" })
    app = application(readings: readings)
    responses = Array.new(3) { get("/ledger.json", on: app) }

    assert_equal 1, counts[:ledger]
    responses.each do |response|
      assert_equal [500, "This page failed. See the application log."],
                   [response.status, JSON.parse(response.body)["error"]]
    end
    assert_match(/failed: gone: .proc.self.secret \(IOError\) at /, log.lines.first)
  end

  def test_a_forked_child_reads_for_itself
    readings, = counting(ledger: -> { Process.pid })
    readings.fetch(:ledger)
    reader, writer = IO.pipe
    Process.wait(fork { writer.write(readings.fetch(:ledger)).then { exit!(0) } })

    refute_equal Process.pid, Integer(reader.read_nonblock(20))
  end

  def test_after_a_purge_all_is_read_anew
    readings, counts = counting(ledger: -> { Memscope.ledger })
    app = application(readings: readings)
    get("/ledger.json", on: app)
    post({ "lever" => "gc" }, on: app)
    get("/ledger.json", on: app)

    assert_equal 2, counts[:ledger]
  end

  def test_metrics
    app = application(readings: counting(metrics: -> { "memscope_rss_bytes 1\n" }).first)
    response = get("/metrics", { "HTTP_ACCEPT" => "application/openmetrics-text" }, on: app)

    assert_equal "text/plain; version=0.0.4; charset=utf-8", response["content-type"]
    assert_equal "memscope_rss_bytes 1\n", response.body
  end
end
