# frozen_string_literal: true

require "psych"
require_relative "../../support/profiled_pages"
require_relative "../../support/profiles"
require_relative "../../support/web_case"
require "cgi/escape"
require "delegate"
require "zlib"

# The page /profile.
class WebProfileTest < WebCase
  include ProfiledPages

  def test_start_look_and_stop
    assert_includes page("/profile").body, "Start a profile"
    assert_includes start.body, "Stop the profile"
    keep
    shown = page("/profile.json")

    assert_equal ["profile", true], JSON.parse(shown.body).values_at("kind", "running")
    assert_match(/malloc profile/, page("/profile.txt").body)
    stopped = post({ "do" => "stop" }, path: "/profile", on: @application)

    assert_equal 200, stopped.status
    assert_includes stopped.body, "profiled_pages.rb"
    refute_predicate Memscope::MallocProfile, :running?
  end

  # The standard library allocates here.
  def parse = (@kept ||= []).concat(Array.new(300) { Psych.load("k" * 10_000) })

  def test_by_the_applications_line
    @application = application(processes: Memscope::Web::Processes.new(clock: -> { now }))
    start
    parse
    @now = 1.1
    shown = page("/profile")

    assert_match(%r{<th [^>]*>\S*psych\S+ in [^<]+ <small>called from test/web/pages/profile_test\.rb:\d+</small>},
                 shown.body)
    assert_includes shown.body, '<a href="/memscope/profile?by=caller">Line of the application</a>'
    shown = page("/profile?by=caller")

    assert_match(%r{<th [^>]*>test/web/pages/profile_test\.rb:\d+ in [^<]+ <small>allocated at \S*psych}, shown.body)
    assert_includes shown.body, '<a href="/memscope/profile?by=caller" aria-current="true">'
    assert_includes shown.body, "Application root: #{Dir.pwd}"
    assert_equal 400, page("/profile?by=file").status
  end

  # The rows link to the part of the profile that is of one tag.
  def test_by_endpoint_and_job
    @application = application(processes: Memscope::Web::Processes.new(clock: -> { now }))

    refute_includes page("/profile").body, "By endpoint and job"
    start
    2.times { Memscope.tag("GET <orders>") { keep } }
    Memscope.tag("GET /other") { parse }
    @now = 1.1
    shown = page("/profile").body
    link = "/memscope/profile?tag=GET+%3Corders%3E"

    assert_includes shown, ">By endpoint and job</h2>"
    assert_includes shown, "<a href=\"#{link}\">GET &lt;orders&gt;</a></th>"
    assert_includes shown, "no profile of objects is running"
    assert_of_one_tag(shown, page(link.delete_prefix("/memscope")).body)
    assert_includes page("/profile?tag=none").body, "Only the tag <b>none</b>"
  end

  def assert_of_one_tag(all, one)
    assert_includes one, "Only the tag <b>GET &lt;orders&gt;</b> <a href=\"/memscope/profile\">All tags</a>"
    assert_includes one, '<a href="/memscope/profile?by=caller&amp;tag=GET+%3Corders%3E">'
    assert_match(/psych/, all)
    refute_match(/psych/, one)
  end

  def test_the_flame_graph_has_the_policy_of_its_scripts
    start
    graph = page("/profile/flamegraph")

    assert_equal 200, graph.status
    assert_match(/script-src 'sha256-/, graph["content-security-policy"])
    assert_includes graph.body, '<a href="../profile">Back to the profile</a>'
  end

  def test_garbage_is_collected_before_the_page_is_read
    start
    keep
    collected = GC.count
    shown = post({ "do" => "gc", "pid" => Process.pid.to_s }, path: "/profile", on: @application)

    assert_equal 200, shown.status
    assert_operator GC.count, :>, collected
    assert_match(/Garbage collected: RSS (?:fell|rose) by .*all Ruby threads of process #{Process.pid} stopped for/,
                 shown.body)
    assert_includes shown.body, "Stop the profile"
  end

  # Counts the renderings during the block, by kind of body.
  def renderings
    counts = Hash.new(0)
    counted = Class.new(SimpleDelegator) do
      { to_html: :flame_graph, to_json: :json, to_s: :text }.each do |name, form|
        define_method(name) do |*state, **options|
          counts[form] += 1
          __getobj__.public_send(name, *state, **options)
        end
      end
      define_method(:by) { |key| __getobj__.by(key).tap { counts[key] += 1 } }
    end
    reading = Memscope::MallocProfile.method(:snapshot)
    Memscope::MallocProfile.stub(:snapshot, -> { counted.new(reading.call) }) { yield counts }
  end

  def now = @now ||= 0.0

  FORMS = { "/profile/flamegraph" => :flame_graph, "/profile.json" => :json, "/profile.txt" => :text,
            "/profile" => :line }.freeze

  def objects(**fields)
    post({ "kind" => "objects", "budget" => "1", **fields.transform_keys(&:name) },
         path: "/profile", on: @application)
  end

  # Allocations are watched from a garbage collection on.
  def keep_objects
    3.times do
      GC.start
      (@kept ||= []).concat(Array.new(20_000) { Object.new })
    end
  end

  def test_objects_are_profiled_on_the_same_page
    assert_includes page("/profile").body, '<a href="/memscope/profile?kind=objects">Objects</a>'
    assert_includes page("/profile?kind=objects").body, "No object profile"
    assert_includes objects(do: "start").body, "Stop the profile"
    keep_objects

    refute_predicate Memscope::MallocProfile, :running?
    shown = JSON.parse(page("/profile.json?kind=objects").body)

    assert_equal "objects", shown["backend"], shown.to_s[0, 1000]
    assert_match(/object profile/, page("/profile.txt?kind=objects").body)
    stopped = objects(do: "stop")

    refute_predicate Memscope::ObjectProfile, :running?
    assert_match(%r{<th [^>]*>test/web/pages/profile_test\.rb:\d+ in .*?</th>.*?<td class="num">\d+,\d{3}</td>},
                 stopped.body)
    assert_includes page("/profile?kind=objects&by=class").body, '<th scope="row" class="path">Object'
  end

  def page_of_objects(*samples)
    @application = application
    lease = Memscope::ObjectProfile.lease
    lease.stub(:state, { session: 1, running: true, shared: true }) do
      lease.stub(:snapshot, Profiles.objects(*samples)) { page("/profile?kind=objects").body }
    end
  end

  def test_the_shares_of_objects_sum_to_the_whole
    shown = page_of_objects(100, 50, 500)
    rows = shown.scan(%r{<td class="num">(\d+\.\d) %</td></tr>}).flatten.map(&:to_f)

    assert_equal 2, rows.size
    assert_in_delta 100, rows.sum, 0.2
  end

  def test_of_too_few_samples_of_objects_nothing_is_estimated
    shown = [[100, 9, 500], [9]].map { |samples| page_of_objects(*samples) }

    unknown = '<td class="num"></td>'

    assert_includes shown.first, %(1 other line</th>#{unknown * 3}<td class="num">9</td>#{unknown})
    assert_match(%r{<th [^>]*>/srv/app/models/cache\.rb:\d+ in [^<]+</th><td class="num">3\.8</td>}, shown.first)
    refute_includes shown.first, "lib/memscope/profile/profile.rb"
    assert_includes shown.last, "<h1>Too few samples yet</h1>"
  end

  def test_each_kind_has_its_flame_graph
    @application = application(processes: Memscope::Web::Processes.new(clock: -> { now }))
    objects(do: "start")
    keep_objects
    @now = 1.1
    graph = page("/profile/flamegraph?kind=objects").body

    assert_includes graph, "<h1>Objects by Ruby line, process #{Process.pid}</h1>"
    assert_includes graph, '<a href="../profile?kind=objects">Back to the profile</a>'
  end

  def test_objects_as_pprof
    @application = application(processes: Memscope::Web::Processes.new(clock: -> { now }))

    assert_equal 404, page("/debug/pprof/objects").status
    objects(do: "start")
    keep_objects
    @now = 1.1
    answer = page("/debug/pprof/objects")

    assert_equal [200, 'attachment; filename="objects.pb.gz"'], [answer.status, answer["content-disposition"]]
    assert_includes Zlib.gunzip(answer.body), "profile_test.rb"
    assert_equal 404, page("/debug/pprof/heap").status
  end

  def test_wrong_fields_of_a_profile_of_objects
    { { budget: "2" } => /budget: given 2, allowed: a number above 0/, { budget: "x" } => /budget: given "x"/,
      { kind: "native" } => /kind: given "native", allowed: malloc, objects/ }.each do |fields, message|
      answer = objects(do: "start", **fields)

      assert_equal 400, answer.status
      assert_match message, CGI.unescapeHTML(answer.body)
    end
    assert_equal 400, page("/profile?kind=native").status
    assert_equal 409, objects(do: "stop").status
  end

  def test_profiles_of_objects_are_closed_by_default
    @application = application(open: false)

    answers = [page("/profile?kind=objects"), page("/debug/pprof/objects"), objects(do: "start")]

    assert_equal [403], answers.map(&:status).uniq
    refute_predicate Memscope::ObjectProfile, :running?
    @application = application(actions: false)

    assert_equal 403, objects(do: "start").status
    assert_includes page("/profile?kind=objects").body, "memscope profile --objects --pid"
  end

  # However many requests there are, and however long rendering takes.
  def test_each_form_is_rendered_once_a_snapshot
    @application = application(processes: Memscope::Web::Processes.new(clock: -> { now }))
    renderings do |counts|
      start
      keep
      bodies = Array.new(3) { FORMS.keys.map { |path| Thread.new { page(path).status } }.map(&:value) }

      assert_equal [200], bodies.flatten.uniq
      assert_equal(FORMS.values.to_h { |form| [form, 1] }, counts.slice(*FORMS.values))
      @now = 1.1
      2.times { FORMS.each_key { |path| page(path) } }

      assert_equal(FORMS.values.to_h { |form| [form, 2] }, counts.slice(*FORMS.values))
    end
  end

  def test_what_is_wrong_is_refused_and_nothing_started
    range = "a power of two from 512 to 1073741824 bytes"
    { { rate: "3" } => [400, "rate: given 3, allowed: #{range}."], { rate: "0" } => [400, "rate: given 0, allowed"],
      { rate: "-512" } => [400, "rate: given -512, allowed"], { rate: "x" } => [400, 'rate: given "x", allowed'],
      { backend: "hope" } => [400, 'backend: given "hope", allowed: auto, jemalloc, imports.'],
      { do: "dance" } => [400, 'do: given "dance", allowed: start, stop, gc.'],
      { worker: "1" } => [400, 'worker: given "1", allowed: all.'],
      { backend: "jemalloc" } => [409, "or use the backend imports"],
      { do: "stop" } => [409, "no malloc profile is running"] }.each do |fields, (status, sentence)|
      refused = start(**fields)

      assert_equal status, refused.status, fields.inspect
      assert_includes CGI.unescapeHTML(refused.body), sentence
      refute_predicate Memscope::MallocProfile, :running?
    end
    start

    assert_equal 409, start.status
    assert_includes start.body, "a malloc profile is already running: stop it first"
    assert_equal 400, post({}, path: "/profile", on: @application).status
  end

  def test_a_form_from_elsewhere_and_where_actions_are_off
    elsewhere = { "HTTP_SEC_FETCH_SITE" => nil, "HTTP_ORIGIN" => "https://elsewhere.example" }
    foreign = post({ "do" => "start" }, OWN.merge(elsewhere), path: "/profile")

    assert_equal 403, foreign.status
    closed = application(actions: false)

    assert_equal 403, post({ "do" => "start" }, path: "/profile", on: closed).status
    assert_includes get("/profile", on: closed).body, "Actions are disabled (<code>actions = false</code>)."
    refute_predicate Memscope::MallocProfile, :running?
  end

  def test_what_the_application_started_is_not_stopped_here
    Memscope::MallocProfile.start(backend: :imports)

    assert_includes page("/profile").body,
                    "The application or <code>memscope profile --pid</code> started this profile and must stop it."
    assert_equal 409, post({ "do" => "stop" }, path: "/profile", on: @application).status
    assert_predicate Memscope::MallocProfile, :running?
  end
end
