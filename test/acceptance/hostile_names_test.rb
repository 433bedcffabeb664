# frozen_string_literal: true

require "json"
require_relative "../test_helper"

# Names that a terminal would obey, or that are in another encoding, on every surface.
class HostileNamesTest < MemscopeTest
  HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/
  # Objects, a tag, a thread and a file of such names.
  PLANTED = <<~'RUBY'
    names = ["A\u202e\u2066\u200e\u061c\u2028\u0085b", "Aあ".encode("Shift_JIS"), "A\xff\xfe".b]
    CLASSES = names.map { |name| Object.const_set(name, Class.new) }
    evil = "x\e]0;owned\a\e[31m\r\n\u0085Set-Cookie: a\u202e\u2029\xff"
    CLASSES << Class.new.tap { |one| one.set_temporary_name(evil.scrub) } if CLASSES.first.respond_to?(:set_temporary_name)
    make = -> { CLASSES.map { |one| Array.new(3_000) { one.new } } }
    eval("def evil_make(make) = make.call", binding, "/srv/\e[31m\u202e\n.rb", 7)
    $kept = make.call
    Thread.new { Thread.current.name = evil.scrub; sleep }
    census = Memscope.census
    profiled = nil
    objects = Memscope.object_profile(budget: 1) { Memscope.tag(evil.scrub) { profiled = evil_make(make) } }
    malloc = Memscope.malloc_profile(backend: :imports, rate: 512) do
      Memscope.tag(evil.scrub) { eval("$s = Array.new(9) { 'x' * 9_000 }", binding, "/srv/\e[31m\u202e\n.rb", 7) }
    end
    measured = Memscope.measure { $more = evil_make(make) }
    graphs = [Memscope.heap_graph(top: 200, strings: true), *CLASSES.map { |one| Memscope.heap_graph(paths_to: one) }]
    readings = [census, Memscope.census - census, *graphs, measured, Memscope.ledger, Memscope.mappings, Memscope.doctor,
                Memscope.workers, Memscope.tags, objects, malloc, objects - objects]
    formats = %i[to_s inspect to_json to_html to_speedscope]
    texts = readings.flat_map do |one|
      formats.filter_map { |format| [[one.class.name, format], one.public_send(format)] if one.respond_to?(format) }
    end
    texts << [["Ledger", :markdown], Memscope.ledger.to_s(markdown: true)]
    texts << [["Metrics"], Memscope::Prometheus.metrics] if Memscope::Prometheus.respond_to?(:metrics)
    File.open("#{DIRECTORY}/dump", "w") { |file| ObjectSpace.dump_all(output: file) }
    dump = File.binread("#{DIRECTORY}/dump")
    File.binwrite("#{DIRECTORY}/dump", dump.gsub('"name":"CLASSES"', '"name":"CLA\u0000\u001b\u202e"'))
    read = Memscope::HeapGraph.read("#{DIRECTORY}/dump", top: 200)
    texts << [["dump"], read.to_s + read.to_json]
    puts JSON.generate(texts.map { |name, text| [name.join(" "), [text].pack("m0"), text.encoding.name] })
  RUBY

  def test_no_surface_shows_a_name_that_is_obeyed
    Dir.mktmpdir do |directory|
      ran = ChildProcess.run("DIRECTORY = #{directory.inspect}\n#{PLANTED}",
                             requires: %w[json objspace memscope], timeout: 120)
      ran.json.each do |name, packed, encoding|
        text = packed.unpack1("m0").force_encoding(encoding)

        assert_predicate text, :valid_encoding?, name
        assert_predicate text.encode(Encoding::UTF_8), :valid_encoding?, name
        refute_match HIDDEN, text, name
        refute_match(/\\u00[01]|\\[bfr]/, text, name) if name.end_with?("to_json")
      end
    end
  end
end
