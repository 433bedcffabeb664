# frozen_string_literal: true

require "stringio"
require_relative "../support/charts"
require_relative "../support/histories"
require_relative "../support/web_case"
require "memscope/cli/top/source"

# One answer to "does it grow?": for one state of a process, every surface has the verdict's word, its reason, and until
# when it is too early, in the same words.
class WordsTest < WebCase
  # MiB by hour, and hours.
  GROWTH = {
    too_early: [0.1, ->(hour) { { malloc: 900 * hour, malloc_in_use: 900 * hour } }],
    steady: [5, ->(_hour) { {} }],
    filling: [6, ->(hour) { %i[malloc malloc_in_use held].to_h { |name| [name, 60 * (1 - Math.exp(-hour))] } }],
    step: [5, ->(hour) { hour < 2.5 ? {} : { malloc: 80, malloc_in_use: 80 } }],
    leak: [5, ->(hour) { { malloc: 40 * hour, malloc_in_use: 40 * hour } }]
  }.freeze
  # A process that listens, and whose verdict this is.
  Answering = Struct.new(:pid, :verdict) do
    def call(name, **)
      { verdict: verdict, allocator: Memscope.allocator, ledger: Memscope.ledger,
        history: Memscope.history }.fetch(name)
    end
  end

  GROWTH.each do |kind, (hours, grown)|
    define_method("test_#{kind}") { assert_same_words(kind, Histories.judge(hours, &grown)) }
  end

  private

  def assert_same_words(kind, verdict)
    assert_equal kind, verdict.kind, verdict.sentence
    told = verdict.sentence

    texts(verdict).each { |surface, text| assert_includes text.gsub(/\s+/, " "), told, surface }
    words(verdict).each { |surface, word| assert_equal verdict.word, word, surface }
    assert_told_by_the_doctor(verdict)
    assert_match(/\(until \d\d:\d\d UTC\)/, told) if kind == :too_early
  end

  # The sentence of each surface that explains.
  def texts(verdict)
    { text: verdict.to_s, json: Memscope::Verdict.from_json(verdict.to_json).sentence, watch: watch(verdict),
      top: Memscope::CLI::Top::OneProcess.new(Answering.new(4711, verdict)).read[:verdict],
      page: CGI.unescapeHTML(page(verdict)[%r{<p class="lede" id="trend">(.*?)</p>}, 1]) }
  end

  # The word of each surface that has a table, and of the metric whose value is 1.
  def words(verdict)
    own = Memscope.workers.first.with(verdict: verdict)
    of_workers = Memscope::Workers.of([own], since: Memscope::Cost.now).to_s
    metric = Memscope::Metrics::DEFINITIONS.find { |one| one.name == "memscope_verdict" }
    { json: JSON.parse(verdict.to_json)["verdict"].tr("_", " "), ps: ps(verdict),
      workers: of_workers[/^ +this .*?(too early|[a-z]+)$/, 1],
      metrics: metric.samples(verdict, nil).key(1)[:kind].tr("_", " "),
      reported: metric.reported_samples({ "0" => own }).key(1)[:kind].tr("_", " ") }
  end

  # A leak is a finding, whose title begins as the sentence does; else the doctor cites the sentence.
  def assert_told_by_the_doctor(verdict)
    diagnosis = Memscope::Doctor.diagnose(Charts.evidence(verdict: verdict))
    text = diagnosis.to_s.gsub(/\s+/, " ")
    return assert_includes text, "By its history: #{verdict.sentence}" unless verdict.leak?

    title = diagnosis.find { |finding| finding.id == :leak }.title

    assert_equal title.downcase, verdict.sentence.downcase[0, title.length]
  end

  def answering(verdict, &) = Memscope::Client.stub(:new, ->(*, **) { Answering.new(4711, verdict) }, &)

  def watch(verdict)
    out = StringIO.new

    answering(verdict) do
      assert_equal verdict.leak? ? 1 : 0, Memscope::CLI.run(%w[watch --pid 4711], out: out, err: out)
    end
    out.string
  end

  def ps(verdict)
    entry = Memscope::Peers::Entry.new(Memscope::ExternalProcess.read(Process.pid))
    answering(verdict) { Memscope::Peers.send(:ask, entry, Memscope::Clock.now + 1) }
    entry.verdict
  end

  def page(verdict)
    readings, = counting(verdict: -> { verdict }, history: -> { Memscope.history })
    get("/history", BROWSER, on: application(processes: readings)).body
  end
end
