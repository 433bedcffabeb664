# frozen_string_literal: true

require_relative "../../support/bodies"
require_relative "../../support/charts"
require_relative "../../support/histories"
require_relative "../../support/web_case"

# The page /, with and without its findings.
class WebOverviewTest < WebCase
  def test_an_owner_has_one_number_on_all_pages
    page = get("/", BROWSER).body
    labels = JSON.parse(CGI.unescapeHTML(page[/data-labels="([^"]+)"/, 1])).keys
    chips = page.scan(%r{<span class="chip row-(\w+)"[^>]*>(\d+)</span>}).to_h

    assert_operator chips.size, :>=, 4
    chips.each { |id, number| assert_equal labels.index(id) + 1, number.to_i, id }
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
    page = get("/", BROWSER, on: application(processes: readings)).body

    assert_equal({ ledger: 1 }, counts)
    assert_includes page, '<noscript><meta http-equiv="refresh" content="0; url=/memscope?findings=1"></noscript>'
    assert_includes page, '<main id="main" tabindex="-1" data-rest="/memscope?findings=1">'
    assert_includes page, '<a class="fine" href="/memscope?findings=1">'
  end

  def test_a_lever_that_is_refused_says_why
    app = application
    refused = Memscope::Purge.missing.slice(:compact).compact
    page = get("/?findings=1", BROWSER, on: app).body

    assert_equal refused.empty?, page.include?('name="lever" value="compact"')
    refused.each_value { |reason| assert_includes page, "<p class=\"fine\">#{reason}.</p>" }
    assert_equal refused.empty? ? 200 : 400, post({ "lever" => "compact", "dry_run" => "1" }, OWN, on: app).status
  end

  # The forecast is based on the ledger of the diagnosis.
  def test_a_finding_and_the_lever_that_it_names_predict_the_same
    diagnosed = Memscope::Web::Processes.new.fetch(:diagnosis_with_forecast)

    assert_same diagnosed.diagnosis.evidence.ledger, diagnosed.forecast.before
    trim = diagnosed.forecast.levers.find { |lever| lever.name == :trim }
    malloc = diagnosed.diagnosis.evidence.ledger.rows.find { |row| row.id == :malloc }

    assert_equal malloc.detail[:trimmable_bytes], trim&.predicted_bytes
  end

  # Also where :compact can run, whose forecast needs the heap: one ledger and one child serve all of it. Each lever is
  # predicted alone, as its button runs it alone: gc as in a dry run, trim without the garbage.
  both_allocators "the overview forks once", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    script = <<~RUBY
      Memscope::Web
      GC.start
      GC.disable
      Thread.new { 10_000.times.map { |number| number.to_s * 500 } && nil }.join
      walks = Hash.new(0)
      Memscope::Purge::Compaction.define_singleton_method(:missing) { nil }
      names = %i[object_blocks ruby_heap ledger]
      readings = Memscope::Web::Processes.new
      native = Memscope.const_get(:Native)
      count = ->(call) { walks[call.method_id] += 1 if names.include?(call.method_id) && call.self.equal?(native) }
      TracePoint.new(:c_call, &count).enable do
        readings.fetch(:diagnosis_with_forecast)
      end
      diagnosed = readings.fetch(:diagnosis_with_forecast)
      puts JSON.generate([diagnosed.forecast.levers.map(&:to_h), Memscope.purge(:gc, dry_run: true).levers.first.to_h, walks])
    RUBY
    levers, dry_run, walks =
      child_json(script, requires: %w[json memscope], bundle: true, preload: preload)
    gc = levers.find { |lever| lever["name"] == "gc" }

    assert_equal({ "object_blocks" => 1 }, walks)
    assert_includes levers.map { |lever| lever["name"] }, "compact"
    %w[predicted_bytes predicted_max_bytes].each { |bound| assert_in_delta dry_run[bound], gc[bound], 1 << 20 }
  end

  # A badge and a sentence for each verdict without problems, the same sentence as in the text.
  def test_the_page_tells_the_verdicts_apart
    garbage = { ledger: { garbage_max_bytes: 192 << 20 },
                snapshot: { gc: { **Charts.snapshot(Charts.glibc)[:gc], oldmalloc_increase_bytes: 65 << 20 } } }
    { {} => ["✓ No problems found", "No problems found. RSS 188.0 MiB."],
      garbage => ["● No verdict yet: collect garbage first", "No verdict yet: up to 192.0 MiB in use"],
      { process_memory: { swap_bytes: nil } } =>
        ["● No problems found, but some checks could not be made", "could not be made (see below)"],
      { verdict: Histories.judge(0.1) { |hour| { malloc: hour < 0.05 ? 0 : 100 } } } =>
        ["● No verdict yet: memory has grown", "No verdict yet: memory has grown since the history began."],
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

  # Its remedy has no cost.
  def test_the_page_of_a_leak
    leak = Histories.judge(5) { |hour| { malloc: 40 * hour, malloc_in_use: 40 * hour } }
    diagnosis = Memscope::Doctor.diagnose(Charts.evidence(verdict: leak))
    body = page_of(diagnosis)

    assert_includes diagnosis.map(&:id), :leak
    assert_match(/leak of native memory: \+\d/, body)
    assert_includes body, "<code>#{leak.remedy}</code>"
    assert_equal diagnosis.next_command, body[%r{<p class="next">Next:</p>.*?<code>(.*?)</code>}m, 1]
    assert_match(/^  next:\n    #{Regexp.escape(diagnosis.next_command)}$/, diagnosis.to_s)
  end

  # The table of processes says "too early" of a young one, and no rate.
  def test_a_young_process
    early = Histories.judge(0.1) { |hour| { malloc: 900 * hour, malloc_in_use: 900 * hour } }
    young = Memscope::Workers.of([Memscope.workers.first.with(verdict: early)], since: Memscope::Cost.now)
    readings, = counting(workers: -> { young })
    text = get("/workers.txt", on: application(processes: readings)).body

    assert_match(/too early/, text)
    refute_match(%r{MiB/h}, text)
  end

  # The last button runs what does no harm; the others have buttons of their own.
  def test_the_page_says_what_the_last_button_leaves_out
    native = Memscope.const_get(:Native)
    actual = native.method(:gc_pause_ms)
    native.define_singleton_method(:gc_pause_ms) { 650.0 }
    forecast = Memscope::Purge.run([], dry_run: true)
    body = page_of(Memscope::Doctor.diagnose(Charts.evidence), forecast)

    assert_match(/Collect garbage is left out: it would stop Ruby for about 650 ms( and .* private)?\. Run it by/,
                 body)
    assert_match(/Collect garbage ….*stop meanwhile: about 650 ms, or longer on a busy machine/m, body)
    refute_match(/Run in this order: .*Collect garbage/, body)
  ensure
    native.define_singleton_method(:gc_pause_ms, actual)
  end

  def test_segments_are_side_by_side_and_what_is_unused_is_at_their_end
    svg = bar(row(:malloc, "75 & 25", 75, children: [row(:in_use, "in use", 60), row(:free, "free", 15)]),
              row(:files, "files", 25))

    assert_equal [["fill segment row-malloc", 0.0, 75.0], ["held", 60.0, 15.0], ["fill segment row-files", 75.0, 25.0]],
                 rectangles(svg)
    assert_includes svg, 'aria-label="The resident set by owner: 75 &amp; 25 75.0 %, files 25.0 %"'
    assert_equal %w[2 6], svg.scan(%r{>(\d)</text>}).flatten
  end

  def test_a_number_is_left_out_where_it_would_not_fit
    svg = bar(row(:malloc, "malloc", 97), row(:files, "files", 3))

    assert_equal %w[2], svg.scan(%r{>(\d)</text>}).flatten
  end

  def test_nothing_at_all_is_no_division_by_zero
    assert_empty rectangles(bar(row(:unattributed, "unattributed", 0)))
  end

  def test_a_meter
    rows = [row(:jit, "code", 60, children: [row(:in_use, "in use", 40), row(:free, "free", 20)]),
            row(:unattributed, "unattributed", 40)]
    meters = overview(*rows).scan(%r{<svg class="meter".*?</svg>}m).map { |svg| rectangles(svg) }

    assert_equal [["track", 0.0, 100.0], ["fill row-jit", 0.0, 60.0], ["held", 40.0, 20.0]], meters.first
    whole = overview(row(:jit, "code", 17), rss_bytes: 10 << 20)[%r{<svg class="meter".*?</svg>}m]

    assert_in_delta(100.0, rectangles(whole).last.last, 0.001, "never more than the whole")
  end

  def row(...) = Bodies.row(...)

  # The page of a ledger with these rows.
  def overview(*rows, **given)
    ledger = Memscope::Ledger.capture(Bodies.ledger(rows: rows, **given))
    readings, = counting(ledger: -> { ledger })
    get("/", BROWSER, on: application(processes: readings)).body
  end

  def bar(*rows) = overview(*rows)[%r{<svg class="bar".*?</svg>}m]

  # [class, x, width] of each rectangle that is drawn, in percent.
  def rectangles(svg)
    found = svg.scan(/<rect class="([^"]+)"(?: x="([\d.e-]+)%")? width="([\d.e-]+)%"/)
    found.map { |name, left, width| [name, left.to_f, width.to_f] }.reject { |_name, _left, width| width.zero? }
  end

  def page_of(diagnosis, forecast = Memscope::Purge.run([:gc], dry_run: true))
    diagnosed = Memscope::Calls::Diagnosed.new(diagnosis, forecast)
    readings, = counting(diagnosis_with_forecast: -> { diagnosed }, verdict: -> { Memscope.verdict })
    get("/?findings=1", BROWSER, on: application(processes: readings)).body
  end
end
