# frozen_string_literal: true

require_relative "../../support/web_case"
require_relative "../../support/listening"

# The page /heap.
class WebHeapGraphTest < WebCase
  include Listening

  Planted = Class.new
  HELD = Array.new(3_000) { |number| [Planted.new, "text #{number} " * 20] }
  # A script of another process, with a cache.
  CATALOG = "class Product; def initialize(i) = @name = i.to_s * 40; end; " \
            "module Catalog; PRODUCTS = Array.new(20_000) { |i| Product.new(i) }; end"

  def setup
    super
    @application = application
    Memscope::Runtime.current.readings.delete(:heap_graph)
  end

  def page(path) = get(path, on: @application)

  def take(**fields)
    post({ "do" => "take", "pid" => Process.pid.to_s, **fields.transform_keys(&:name) }, path: "/heap",
                                                                                         on: @application)
  end

  def test_nothing_is_kept_yet
    shown = page("/heap")

    assert_equal 200, shown.status
    assert_includes shown.body, "No heap graph has been made yet in process #{Process.pid}."
    assert_equal 404, page("/heap.json").status
  end

  def test_take_and_look
    taken = take.body

    assert_match(/role="status">Following the references.*<h1>.*held by/m, taken)
    shown = page("/heap").body
    graph = Memscope::HeapGraph.from_json(page("/heap.json").body)

    assert_equal Process.pid, graph.pid
    assert_includes shown, "The last fork stopped Ruby for"
    assert_equal (graph.reasons.keys - [:names]).map { |id| id.name.tr("_", " ") },
                 shown.scan(%r{<dt>(.+)</dt>}).flatten
    %w[paths holders classes garbage roots].each { |part| assert_includes shown, "id=\"#{part}-title\"" }
    refute_includes shown, "strings-title"
    assert_match(/reachable: .* garbage: /, page("/heap.txt").body)
  end

  def test_who_holds_a_class
    take(paths_to: "WebHeapGraphTest::Planted", strings: "1")
    shown = CGI.unescapeHTML(page("/heap").body).gsub(/<[^>]+>/, "")

    assert_match(/3,000 objects, held through one kind of path/, shown)
    assert_match(/WebHeapGraphTest::HELD → Array ×2 → WebHeapGraphTest::Planted\s+3,000 objects on such paths/, shown)
    assert_match(/[\d,]+ of [\d,]+ strings are duplicates of others; the duplicates take [\d.]+ [KM]iB/, shown)
    refute_includes shown, "text 1 "
  end

  # The tiles are disjoint, so that their areas can be those of bytes.
  def test_tiles_sum_to_the_heap
    take
    request = Memscope::Web::Request.new({ **LOCAL, "PATH_INFO" => "/heap", "REQUEST_METHOD" => "GET" })
    subject = Memscope::Web::Pages::HeapGraph.new(Memscope::Web::Readings.new, request)
    graph = subject.reading

    assert_equal graph.reachable_bytes + graph.garbage_bytes, subject.tiles.sum(&:bytes)
    assert_operator subject.tiles.size, :>, 3
    subject.tiles.filter_map(&:target).each { |id| assert_includes page("/heap").body, %(<li id="#{id}">) }
  end

  def test_orders
    take
    rows = page("/heap?classes=objects&holders=own").body.scan(/aria-sort="descending"><a [^>]*>([^<]+)</).flatten

    assert_equal ["Own MiB", "Objects"], rows
    counts = order_of("classes=objects", "classes")

    assert_equal counts.sort.reverse, counts
  end

  # The numbers in the third column of a table.
  def order_of(query, section)
    body = page("/heap?#{query}").body[%r{<section class="wide" id="#{section}".*?</section>}m]
    body.scan(%r{<tr>.*?</tr>}m).filter_map { |row| row.scan(%r{<td class="num">([\d,]+)</td>}).flatten.last }
        .map { |text| text.delete(",").to_i }
  end

  def test_wrong_parameters
    take
    { "/heap?classes=colour" => 'classes: given "colour", allowed: retained, own, objects.',
      "/heap?holders=colour" => 'holders: given "colour", allowed: retained, own, objects.' }.each do |path, sentence|
      answer = get(path, { "HTTP_ACCEPT" => "text/html" }, on: @application)

      assert_equal 400, answer.status
      assert_includes CGI.unescapeHTML(answer.body), sentence
    end
    assert_equal 400, take(do: "nothing").status
    assert_equal 409, take(pid: "1").status
  end

  def test_a_class_that_nobody_knows
    take(paths_to: "<Unheard>")

    assert_match(%r{Who holds &lt;Unheard&gt;</h2>\n<p>There is no object of a class of that name\.</p>},
                 page("/heap").body)
  end

  # In a child that the container's limit leaves no room for, for instance.
  def test_a_refusal_is_shown_with_its_reason
    refused = { **Memscope.heap_graph(top: 1).to_h, reachable_count: nil, reasons: { reachable_count: "no room" } }
    Memscope::Runtime.current.readings[:heap_graph] = JSON.generate(refused)

    assert_match(%r{<h1>No heap graph</h1>.*<li>No room\.</li>}m, page("/heap").body)
  end

  def test_without_actions
    @application = application(actions: false)

    assert_equal 403, take.status
    assert_includes page("/heap?paths_to=Order").body, "memscope heap --pid #{Process.pid} --paths-to Order</code>"
    refute_includes page("/heap").body, "<form"
  end

  def dump(path: "/dump", **fields)
    post({ "pid" => Process.pid.to_s, **fields.transform_keys(&:name) }, path: path, on: @application)
  end

  # Files, and open descriptors of files that have no name any more.
  def left_over
    open = Dir["/proc/self/fd/*"].filter_map { |link| File.readlink(link) if File.symlink?(link) }
    [Dir[File.join(Dir.tmpdir, "memscope-*")], open.grep(%r{/memscope-.*/dump})]
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
    address = lines[/^{"address":"(\w+)"[^\n]*"type":"CLASS"[^\n]*"name":"WebHeapGraphTest::Planted"/, 1]
    lines.scan(/"type":"OBJECT"[^\n]*"class":"#{address}"/).size
  end

  def test_who_may_have_a_dump
    { [403, "actions"] => application(actions: false), [403, "Access denied"] => application(rails_env: "production") }
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
    assert_includes page("/heap").body, '<form method="post" action="/memscope/dump">'
  end

  # The limit of a file's size ends the child in the middle.
  def test_nothing_is_left_of_a_dump_that_fails
    status, sentence, left = child_json(<<~RUBY, requires: %w[json memscope], bundler: true)
      Memscope::Web
      directory = Dir.mktmpdir
      ENV["TMPDIR"] = directory
      calls = Memscope::Web::ClusterCalls.new(Memscope::Web::Readings.new, workers: [])
      Process.setrlimit(:FSIZE, 100_000)
      failure = begin
        calls.dump(calls.place({}), :objspace)
      rescue Memscope::Web::HttpError => e
        e
      end
      puts JSON.generate([failure.status, failure.message, Dir.children(directory)])
      Dir.rmdir(directory)
    RUBY

    assert_equal [503, []], [status, left]
    assert_match(/\ANo dump was written: .+\.\z/, sentence)
  end

  # A process that has not answered in time creates its file when the directory is being removed, and removes the file
  # at the same time as this process.
  def test_nothing_is_left_of_a_dump_that_begins_too_late
    status, left = child_json(<<~RUBY, requires: %w[json memscope], bundler: true)
      Memscope::Web
      directory = Dir.mktmpdir
      ENV["TMPDIR"] = directory
      late = [->(path) { File.write("\#{path}/dump", "") }]
      Dir.singleton_class.prepend(Module.new { define_method(:rmdir) { |path| late.pop&.call(path); super(path) } })
      removed = []
      File.singleton_class.prepend(Module.new do
        define_method(:unlink) { |path| removed.include?(path) ? super(path) : 2.times { super(removed.push(path).last) } }
      end)
      calls = Memscope::Web::ClusterCalls.new(Memscope::Web::Readings.new, workers: [])
      gone = Process.wait(spawn("true"))
      failure = begin
        calls.dump(Memscope::Web::ClusterCalls::Place.new(0, gone), :objspace)
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
    calls = Memscope::Web::ClusterCalls.new(Memscope::Web::Readings.new, workers: [])
    file = calls.dump(Memscope::Web::ClusterCalls::Place.new(0, other.pid), :objspace)

    assert_equal before, left_over.first
    assert_includes file.read, "Catalog"
  ensure
    file&.close
  end

  def test_a_census_leads_to_paths
    post({ "do" => "take", "pid" => Process.pid.to_s }, path: "/census", on: @application)

    assert_includes page("/census").body, %(href="/memscope/heap?paths_to=WebHeapGraphTest%3A%3APlanted")
    assert_includes page("/heap?paths_to=WebHeapGraphTest%3A%3APlanted").body, 'value="WebHeapGraphTest::Planted"'
  end

  def test_of_another_process
    other = listening(CATALOG)
    place = Memscope::Web::ClusterCalls::Place.new(0, other.pid)
    calls = Memscope::Web::ClusterCalls.new(Memscope::Web::Readings.new, workers: [])

    assert_nil calls.kept_heap_graph(place)
    assert_raises(ArgumentError) { calls.take_heap_graph(place, strings: 1) }
    calls.take_heap_graph(place, paths_to: nil, strings: false)
    kept = calls.kept_heap_graph(place)

    assert_equal other.pid, kept.pid
    assert_equal "Catalog::PRODUCTS → Array", kept.paths.first.to_s
  end
end
