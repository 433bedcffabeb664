# frozen_string_literal: true

require_relative "../test_helper"
require "json"
require "tmpdir"

# An object of C code whose class says nothing has the name of its type: in a graph, in a census and in dumps.
class ClassNamesTest < MemscopeTest
  TRACER = "ObjectTracing/allocation_info_tracer"
  # Tracing's table is a T_DATA of class Object; that of autoloaded constants has no class.
  PROGRAM = <<~'RUBY'
    require "objspace"
    ObjectSpace.trace_object_allocations_start
    KEEP = Array.new(20_000) { Object.new }
    autoload :Never, "/nowhere/never"
    class Order; end
    ObjectSpace.dump_all(output: File.open("#{ARGV[0]}/ruby.json", "w")).close
    Memscope.dump("#{ARGV[0]}/own.json", format: :objspace)
    Memscope::Dump.convert("#{ARGV[0]}/own.json", "#{ARGV[0]}/again.json", format: :objspace)
  RUBY

  def names(graph) = graph.retained.map(&:name)

  def test_data_by_its_type
    Dir.mktmpdir("memscope") do |directory|
      graph, census = child_json("ARGV.replace [#{directory.dump}]\n#{PROGRAM}\n" \
                                 "puts JSON.generate([Memscope.heap_graph(top: 500), Memscope.census])",
                                 requires: %w[json memscope])
      graph = Memscope::HeapGraph.from_h(graph)
      census = Memscope::Census.from_h(census)
      dumps = Dir["#{directory}/*.json"].map { |dump| Memscope::HeapGraph.read(dump, top: 500) }

      assert_operator dumps.size, :>=, 2
      [graph, *dumps].each do |one|
        paths = one.paths.map { |path| path.to_s.sub("VM/pin_array_list → ", "") } # as in Ruby 4.0

        assert_includes paths, "(vm) → #{TRACER}"
        assert_includes names(one), "autoload_const"
      end
      row = census.by(:class).find { |one| one.name == TRACER }

      assert_equal 1, row.count
      assert_operator row.memsize_bytes, :>, 500_000
      assert_includes census.by(:class).map(&:name), "autoload_const"
      assert_equal census.total_memsize_bytes, census.by(:class).sum(&:memsize_bytes)
    end
  end
end
