# frozen_string_literal: true

require_relative "../../support/web_case"
require_relative "../../support/black_boxes"
require_relative "../../support/histories"
require_relative "../../support/planted_history"

# The page /history, and what the overview says about the history.
class WebHistoryTest < WebCase
  parallelize_me!

  Verdict = Struct.new(:sentence)

  def planted = @planted ||= PlantedHistory.week(now: Time.utc(2026, 11, 26, 9, 10))

  def serving(**kinds)
    application(processes: Memscope::Web::Processes.new({ history: -> { planted }, **kinds }))
  end

  def page(path, on: serving) = get(path, on: on)

  # The table of `puts Memscope.history`.
  def test_the_table_has_a_line_for_each_series
    lines = page("/history").body.scan(%r{<tr><th scope="row"[^>]*>(.*?) +[▁-█]+</th>(.*?)</tr>}m)
    text = planted.to_s(unicode: true)

    assert_equal planted.series.size - 2, lines.size # two have no memory
    lines.each do |name, cells|
      numbers = cells.scan(%r{<td class="num">(.*?)</td>}).flatten.map { |cell| Regexp.escape(cell.tr("−", "-")) }

      assert_match(/^ +#{numbers.join(' +')}  #{name} +[▁-█]+$/, text)
    end
  end

  def test_the_page_says_how_often_it_samples
    assert_includes page("/history").body, "RSS is sampled every 10 seconds, its split by owner every 60 seconds."
  end

  def test_json_is_the_whole_history_or_that_of_a_range
    app = serving

    assert_equal planted, Memscope::History.from_json(page("/history.json", on: app).body)
    { "1h" => 10, "12h" => 60, "7d" => 600 }.each do |range, step|
      history = Memscope::History.from_json(page("/history.json?range=#{range}", on: app).body)

      assert_equal [step], history.curves.flat_map { |curve| curve.rings.map(&:step_seconds) }.uniq
      assert_equal planted.points(:malloc, step: step), history.points(:malloc)
    end
    assert_includes page("/history.txt", on: app).body, "Ruby internals"
  end

  def test_an_unknown_range_is_refused
    %w[/history /].each do |path|
      refused = page("#{path}?range=2h")

      assert_equal 400, refused.status
      assert_includes refused.body, "1h, 12h, 7d"
    end
    assert_includes page("/?range=12h").body, 'data-range="12h" data-step="60" aria-current="true"'
  end

  def test_the_chart_is_that_of_the_process_of_the_page
    body = page("/history").body

    assert_includes body, "data-history=\"/memscope/history.json\" data-ledger=\"/memscope/ledger.json\" " \
                          "data-pid=\"#{Process.pid}\""
    assert_empty body.scan(" style=")
    labels = JSON.parse(CGI.unescapeHTML(body[/data-labels="([^"]+)"/, 1]))

    assert_equal Memscope::History::ROWS.map(&:name), labels.keys
  end

  def test_without_a_history_the_page_says_how_to_start_one
    none = Memscope::History.capture({ running: false, started_at: nil, curves: [], events: [],
                                       reasons: { running: "a history needs `x` or y" },
                                       cost: Memscope::Cost.of(:T1) })
    body = page("/history", on: serving(history: -> { none })).body

    assert_includes body, "A history needs <code>x</code> or y."
    refute_includes body, "<tbody>"
  end

  # Not why the verdict has no number that no page shows.
  def test_only_reasons_for_what_is_drawn
    reasons = { floors: "no GC hook", malloc_active: "no jemalloc", malloc: "refused" }
    _verdict, planted = Histories.plant(1) { {} }
    history = Memscope::History.from_h({ **planted.to_h, reasons: reasons })
    body = page("/history", on: serving(history: -> { history })).body

    assert_includes body, "refused"
    refute_match(/no GC hook|no jemalloc/, body)
  end

  # The process's own box, and those of two deaths, the first of another release.
  def test_deaths_and_releases
    began = (planted.started_at.to_r * 1000).to_i
    boxes = { "1-1.box" => life(11, began - 86_400_000, "1a"), "2-1.box" => life(12, began - 9_000_000, "2b"),
              "3-1.box" => life(Process.pid, began, "2b", started: BlackBoxes::CURRENT.started) }
    BlackBoxes.planted(boxes) do |directory, source|
      lives = Memscope::Boxes::Lives.of(planted, directory: directory, native: source)
      app = application(processes: outliving(lives).new({ history: -> { planted } }))
      body = page("/history", on: app).body
      marks = JSON.parse(CGI.unescapeHTML(body[/data-marks="([^"]+)"/, 1]))

      kinds = marks.map { |mark| mark["kind"] }

      assert_equal ["puma worker 2 ended (killed)", "puma worker 2 ended (killed)", "release 2b"], kinds
      assert_equal %w[2-1.box 1-1.box], body.scan(%r{<a href="/memscope/history\?death=([^"]+)#death">}).flatten
      explained = page("/history?death=1-1.box", on: app).body

      assert_includes explained, "The end of puma worker 2, pid 11"
      refute_includes body, "The end of puma worker 2"
    end
  end

  def test_a_history_goes_on_over_restarts
    longer = Memscope::History.from_h({ **planted.to_h, started_at: "2026-11-01T00:00:00.000Z" })
    lives = Struct.new(:deaths, :releases, :sentence) { define_method(:before) { |_history| longer } }
    known = lives.new([], [], "Since release 2b, +- 3.0.")
    body = page("/history", on: application(processes: outliving(known).new({ history: -> { planted } }))).body

    assert_match(/of this process, and before it of those in its place, since <time datetime="2026-11-01T/, body)
    assert_includes body, "Since release 2b, ± 3.0."
    refute_includes page("/history").body, "in its place"
  end

  def test_without_boxes
    body = page("/history").body

    assert_includes body, 'data-marks="[]"'
    refute_includes body, "Deaths"
  end

  # Until there is a verdict, the overview leaves no room for it.
  def test_the_verdict_is_a_sentence_above_the_chart
    app = serving(verdict: -> { Verdict.new("malloc leaks 21.6 MiB a day.") })

    assert_includes page("/history", on: app).body, '<p class="lede" id="trend">malloc leaks 21.6 MiB a day.</p>'
    assert_includes page("/?findings=1", on: app).body, '<p class="lede" id="trend">malloc leaks 21.6 MiB a day.</p>'
    assert_includes page("/", on: app).body, '<p class="lede" id="trend"></p>'
  end

  private

  # Processes with these lives, whatever boxes there are.
  def outliving(lives)
    Class.new(Memscope::Web::Processes) do
      define_method(:fetch) do |kind, *key, **options, &block|
        kind == :lives ? lives : super(kind, *key, **options, &block)
      end
    end
  end

  def life(pid, began, release, **given)
    at = { pid: pid, release: release, began_at: began, directory: cgroup, **given }
    BlackBoxes.body(pid: pid, seen: began + 7_000_000, identity: at)
  end

  def cgroup = @cgroup ||= BlackBoxes.cgroup(3)
end
