# frozen_string_literal: true

require "openssl"
require_relative "../../support/listening"
require_relative "../../support/web_case"

# The page /objects: censuses, heap graphs and dumps.
class WebObjectsTest < WebCase
  include Listening

  Planted = Class.new
  Counted = Class.new
  HELD = Array.new(3_000) { |number| [Planted.new, "text #{number} " * 20] }
  # A script of another process, with a cache.
  CATALOG = "class Product; def initialize(i) = @name = i.to_s * 40; end; " \
            "module Catalog; PRODUCTS = Array.new(20_000) { |i| Product.new(i) }; end"

  def setup
    super
    @application = application
    Memscope::Runtime.current.readings.clear
  end

  def page(path) = get(path, on: @application)

  def take(kind = "heap", **fields)
    post({ "do" => "take", "pid" => Process.pid.to_s, **fields.transform_keys(&:name) }, path: "/#{kind}",
                                                                                         on: @application)
  end

  def test_nothing_is_kept_yet
    shown = page("/objects")

    assert_equal 200, shown.status
    assert_includes shown.body, "No heap graph has been made yet in process #{Process.pid}."
    assert_includes shown.body, "None has been taken yet in process #{Process.pid}."
    assert_equal([404, 404], %w[/heap.json /census.json].map { |path| page(path).status })
    assert_equal '{"census":null,"heap":null}', page("/objects.json").body.chomp
    assert_match(/\ANo census and no heap graph/, page("/objects.txt").body)
  end

  def test_take_and_look
    taken = take.body
    shown = page("/objects").body
    graph = Memscope::HeapGraph.from_json(page("/heap.json").body)

    [taken, shown].each { |body| assert_match(/held by .*Find what retains.*retained by one object/m, body) }
    assert_equal Process.pid, graph.pid
    assert_includes shown, "The last fork stopped Ruby for"
    assert_equal (graph.reasons.keys - [:names]).map { |id| id.name.tr("_", " ") },
                 shown.scan(%r{<dt>(.+)</dt>}).flatten
    ["where memory has accumulated", "retained by one object", "class", "class of garbage"].each do |heading|
      assert_includes shown, "<th scope=\"col\">#{heading}</th>"
    end
    refute_includes shown, "the same String"
    assert_match(/reachable: .* garbage: /, page("/heap.txt").body)
  end

  # The process that was asked has the graph in hand: nothing is asked for, made or checked a second time.
  def test_a_graph_is_made_and_checked_once
    counts = Hash.new(0)
    kept = []
    trace = TracePoint.new(:call) do |point|
      counts[[point.defined_class, point.method_id]] += 1
      kept << point.binding.local_variable_get(:name) if point.callee_id == :kept && point.self.is_a?(Memscope::Runtime)
    end
    trace.enable { [take, page("/objects")] }
    called = counts.keys.map(&:last)

    assert_includes called, :take_heap_graph
    assert_equal 1, kept.count(:heap_graph)
    assert_empty counts.keys.map(&:first) & [Memscope::Loader, Memscope::Loader.singleton_class]
  end

  def test_what_holds_a_class
    take(paths_to: "WebObjectsTest::Planted", strings: "1")
    shown = CGI.unescapeHTML(page("/objects").body).gsub(/<[^>]+>/, " ")

    assert_match(/paths to WebObjectsTest::Planted \(3,000 objects\): 1 kind\b/, shown)
    assert_match(/WebObjectsTest::HELD → Array ×2 → WebObjectsTest::Planted \(3,000 alike\)/, shown)
    assert_match(/[\d,]+ of [\d,]+ Strings are duplicates of others, which take [\d.]+ [KM]iB/, shown)
    refute_includes shown, "text 1 "
  end

  def test_wrong_parameters
    take("census")
    answer = get("/objects?by=colour", { "HTTP_ACCEPT" => "text/html" }, on: @application)

    assert_equal 400, answer.status
    assert_includes CGI.unescapeHTML(answer.body), 'by: given "colour", allowed: class, type, imemo, slot_size, age.'
    %w[heap census].each do |kind|
      assert_equal 400, take(kind, do: "nothing").status
      assert_equal 409, take(kind, pid: "1").status
    end
  end

  def test_a_class_that_nobody_knows
    take(paths_to: "<Unheard>")

    assert_match(%r{What holds &lt;Unheard&gt;</h2>.*There is no object of a class of that name\b}m,
                 page("/objects").body.sub("there is", "There is"))
  end

  # In a child that the container's limit leaves no room for, for instance.
  def test_a_refusal_is_shown_with_its_reason
    refused = { **Memscope.heap_graph(top: 1).to_h, reachable_count: nil, reasons: { reachable_count: "no room" } }
    Memscope::LastReadings.keep(Memscope::HeapGraph.from_h(refused))

    assert_match(%r{<h1>No heap graph</h1>.*<li>No room\.</li>}m, page("/objects").body)
  end

  # A census only reads.
  def test_without_actions
    @application = application(actions: false)

    assert_equal 403, take.status
    assert_equal [200, 403], [take("census"), take("census", do: "gc")].map(&:status)
    assert_equal 403, post({ "do" => "take" }, LOCAL, path: "/census", on: @application).status
    assert_includes page("/objects?paths_to=Order").body, "memscope heap --pid #{Process.pid} --paths-to Order</code>"
    refute_includes page("/objects").body, 'action="/memscope/heap"'
  end

  def test_two_censuses_show_what_grew
    kept = Array.new(1_000) { Counted.new }

    assert_equal 200, take("census").status
    kept.concat(Array.new(1_500) { Counted.new })
    stores = Array.new(50) { OpenSSL::X509::Store.new }
    collected = GC.count

    assert_equal 200, take("census", do: "gc").status
    assert_operator GC.count, :>, collected
    body = page("/objects").body

    assert_match(%r{>WebObjectsTest::Counted</a></th>.*<td class="num">\+1,500</td>.*<td class="num">2,500</td>}, body)
    assert_match(%r{reports no size</th>.*OpenSSL::X509::Store</a></th><td class="num">\+(49|50)</td>}m, body)
    assert_includes page("/objects?by=imemo").body, "imemo_iseq"
    assert_includes body, %(href="/memscope/objects?paths_to=WebObjectsTest%3A%3ACounted#main")
    assert_includes page("/objects?paths_to=WebObjectsTest%3A%3ACounted").body, 'value="WebObjectsTest::Counted"'
    assert_census(Memscope::Census.from_json(page("/census.json").body), kept.size)
    assert_match(/objects: .* in slots/, page("/census.txt").body)
    assert_equal 50, stores.size
  end

  def assert_census(census, number)
    planted = census.by(:class).find { |row| row.name == "WebObjectsTest::Counted" }

    assert_equal [number, true], [planted.count, census.collected?]
  end

  def test_of_another_process
    other = listening(CATALOG)
    place = Memscope::Web::Processes::Place.new(0, other.pid)
    calls = Memscope::Web::Processes.new(workers: [])

    assert_equal([[], []], %i[kept_heap_graph kept_censuses].map { |name| calls.call(place, name) })
    assert_raises(Memscope::Web::HttpError) { calls.call(place, :take_heap_graph, strings: 1) }
    taken = calls.call(place, :take_heap_graph, paths_to: nil, strings: false)

    assert_equal taken, calls.call(place, :kept_heap_graph)
    assert_equal [other.pid, "Catalog::PRODUCTS → Array"], [taken.last.pid, taken.last.paths.first.to_s]
    censuses = Array.new(2) { calls.call(place, :take_census, gc: false) }.last

    assert_equal [other.pid, other.pid], censuses.map(&:pid)
    assert_operator censuses.last.by(:class).find { |row| row.name == "Product" }.count, :>=, 20_000
  end

  def dump(path: "/dump", **fields)
    post({ "pid" => Process.pid.to_s, **fields.transform_keys(&:name) }, path: path, on: @application)
  end

  # Directories of this process, and open descriptors of files that have no name any more.
  def left_over
    open = Dir["/proc/self/fd/*"].filter_map { |link| File.readlink(link) if File.symlink?(link) }
    [Dir[File.join(Dir.tmpdir, "memscope-*-#{Process.pid}-*")], open.grep(%r{/memscope-.*/dump})]
  end

  def test_a_dump_is_downloaded_and_gone
    before = left_over
    Memscope::Dump::FORMATS.each do |format, (ending, *)|
      answer = dump(format: format.name)

      assert_equal [200, "application/octet-stream"], [answer.status, answer.content_type]
      assert_equal %(attachment; filename="memscope-#{Process.pid}#{ending}"), answer["content-disposition"]
      assert_equal answer["content-length"].to_i, answer.body.bytesize
      assert_operator answer.body.bytesize, :>, 100_000
      refute_includes answer.body.b, "text 1 text 1"
      assert_equal HELD.size, planted(answer.body) if format == :objspace
    end

    assert_equal before, left_over
    assert_equal "attachment; filename=\"memscope-#{Process.pid}.pftrace\"", dump["content-disposition"]
  end

  # How many Planted objects ObjectSpace's lines have.
  def planted(lines)
    address = lines[/^{"address":"(\w+)"[^\n]*"type":"CLASS"[^\n]*"name":"WebObjectsTest::Planted"/, 1]
    lines.scan(/"type":"OBJECT"[^\n]*"class":"#{address}"/).size
  end

  def test_who_may_have_a_dump
    { [403, "actions"] => application(actions: false), [403, "Access denied"] => application(open: false) }
      .each do |(status, sentence), closed|
        @application = closed
        answer = dump

        assert_equal status, answer.status
        assert_includes answer.body, sentence
      end
    @application = application

    assert_equal 400, dump(format: "colour").status
    assert_equal 409, dump(pid: "1").status
    assert_equal 405, page("/dump").status
    assert_equal 403, post({}, { **OWN, "HTTP_SEC_FETCH_SITE" => "cross-site" }, path: "/dump", on: @application).status
    assert_includes page("/objects").body, '<form method="post" action="/memscope/dump">'
  end

  # The limit of a file's size ends the child in the middle.
  def test_nothing_is_left_of_a_dump_that_fails
    status, sentence, left = child_json(<<~RUBY, requires: %w[json memscope], bundle: true)
      Memscope::Web
      directory = Dir.mktmpdir
      ENV["TMPDIR"] = directory
      actions = Memscope::Web::Actions.new({ "format" => ["objspace"] }, Memscope::Web::Processes.new(workers: []))
      Process.setrlimit(:FSIZE, 100_000)
      failure = begin
        actions.dump
      rescue Memscope::Web::HttpError => e
        e
      end
      puts JSON.generate([failure.status, failure.message, Dir.children(directory)])
      Dir.rmdir(directory)
    RUBY

    assert_equal [503, []], [status, left]
    assert_match(/: no dump was written: .+\.\z/, sentence)
  end

  # A process that has not answered in time creates its file when the directory is being removed, and removes the file
  # at the same time as this process.
  def test_nothing_is_left_of_a_dump_that_begins_too_late
    status, left = child_json(<<~RUBY, requires: %w[json memscope], bundle: true)
      Memscope::Web
      directory = Dir.mktmpdir
      ENV["TMPDIR"] = directory
      late = [->(path) { File.write("\#{path}/dump", "") }]
      Dir.singleton_class.prepend(Module.new { define_method(:rmdir) { |path| late.pop&.call(path); super(path) } })
      removed = []
      File.singleton_class.prepend(Module.new do
        define_method(:unlink) { |path| removed.include?(path) ? super(path) : 2.times { super(removed.push(path).last) } }
      end)
      gone = Process.wait(spawn("true"))
      workers = [Memscope::Worker.capture({ index: 0, pid: gone, role: :worker, samples: 0, reasons: {} })]
      failure = begin
        Memscope::Web::Actions.new({}, Memscope::Web::Processes.new(workers: workers)).dump
      rescue Memscope::Web::HttpError => e
        e
      end
      puts JSON.generate([failure.status, Dir.children(directory)])
      Dir.rmdir(directory)
    RUBY

    assert_equal [502, []], [status, left]
  end

  def test_a_dump_of_another_process
    other = listening(CATALOG)
    before = left_over.first
    workers = [Memscope::Worker.capture({ index: 0, pid: other.pid, role: :worker, samples: 0, reasons: {} })]
    processes = Memscope::Web::Processes.new(workers: workers)
    file, = Memscope::Web::Actions.new({ "format" => ["objspace"] }, processes).dump

    assert_equal before, left_over.first
    assert_includes file.read, "Catalog"
  ensure
    file&.close
  end
end
