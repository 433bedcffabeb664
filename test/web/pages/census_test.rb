# frozen_string_literal: true

require "openssl"
require_relative "../../support/web_case"
require_relative "../../support/listening"

# The page /census.
class WebCensusTest < WebCase
  include Listening

  Planted = Class.new

  def setup
    super
    @application = application
  end

  def page(path) = get(path, on: @application)

  def take(**fields)
    post({ "do" => "take", "pid" => Process.pid.to_s, **fields.transform_keys(&:name) }, path: "/census",
                                                                                         on: @application)
  end

  # In this order, since a process cannot forget the census that it keeps.
  def test_take_look_and_compare
    shown = page("/census")

    assert_equal 200, shown.status
    assert_includes shown.body, "Take a census"
    kept = Array.new(1_000) { Planted.new }

    assert_equal 200, take.status
    kept.concat(Array.new(1_500) { Planted.new })
    stores = Array.new(50) { OpenSSL::X509::Store.new }
    collected = GC.count

    assert_equal 200, take(do: "gc").status
    assert_operator GC.count, :>, collected
    body = page("/census?sort=more").body

    assert_match(%r{>WebCensusTest::Planted</th>.*<td class="num">2,500</td>.*<td class="num">\+1,500</td>}, body)
    assert_match(%r{report no size</h2>.*OpenSSL::X509::Store</th><td class="num">\+(49|50)</td>}m, body)
    refute_match(%r{</th><td class="num">0\.0</td>}, body)
    assert_includes page("/census?by=imemo").body, "imemo_iseq"
    json = page("/census.json")
    census = Memscope::Census.from_json(json.body)

    planted = census.by(:class).find { |row| row.name == "WebCensusTest::Planted" }

    assert_equal 50, stores.size
    assert_equal [kept.size, true], [planted.count, census.collected?]
    refute_includes body, "<dt>names</dt>"
    assert_match(/objects: .* in slots/, page("/census.txt").body)
  end

  def test_wrong_parameters
    take
    { "/census?by=colour" => 'by: given "colour", allowed: class, type, imemo, slot_size, age.',
      "/census?sort=colour" => /\Asort: given "colour", allowed: memsize, slots, objects, old/ }
      .each do |path, sentence|
      answer = get(path, { "HTTP_ACCEPT" => "text/html" }, on: @application)

      assert_equal 400, answer.status
      assert_match sentence, CGI.unescapeHTML(answer.body)[%r{<p class="lede">(.*)</p>}, 1]
    end
    assert_equal 400, take(do: "nothing").status
    assert_equal 409, take(pid: "1").status
  end

  # A census only reads.
  def test_without_actions
    @application = application(actions: false)

    assert_equal 200, take.status
    assert_equal 403, take(do: "gc").status
    assert_equal 403, post({ "do" => "take", "token" => "wrong" }, { **OLD }, path: "/census", on: @application).status
  end

  def test_of_another_process
    other = listening("KEPT = Array.new(4_321) { Class.new; Object.new }")
    place = Memscope::Web::ClusterCalls::Place.new(0, other.pid)
    calls = Memscope::Web::ClusterCalls.new(Memscope::Web::Readings.new, workers: [])

    assert_empty calls.kept_censuses(place)
    2.times { calls.take_census(place, gc: false) }
    kept = calls.kept_censuses(place)

    assert_equal [other.pid, other.pid], kept.map(&:pid)
    assert_operator kept.last.by(:class).find { |row| row.name == "Object" }.count, :>=, 4_321
  end
end
