# frozen_string_literal: true

require_relative "../test_helper"
require "etc"
require "fileutils"
require "tmpdir"

# A new field takes a line in its table and a line where its value comes from. One is planted here, in a copy of the
# gem: then the extension's struct, the Hash that it makes of it, Ruby's reader, JSON, the signatures and the
# documentation have it.
class NewFieldTest < MemscopeTest
  TABLE = ["lib/memscope/heap/heap_graph.fields", /^HeapGraph::Strings <.*\n(?: {4}.*\n)*/,
           "\\0  planted count?\n    [Integer, nil] a number\n"].freeze
  SOURCE = ["ext/memscope/ruby/graph/duplicate_strings.c", /\*sums = \(struct memscope_string_sums\)\{\K0/,
            ".planted = 4711"].freeze
  READ = <<~'RUBY'
    require "memscope"
    require "json"
    require "rake"
    load "rakelib/signatures.rake"
    strings = Memscope.heap_graph(strings: true).strings
    raise "not read: #{strings}" unless strings.planted == 4711
    raise "not in JSON" unless Memscope::HeapGraph::Strings.from_h(JSON.parse(strings.to_json)) == strings
    raise "no signature" unless Signatures.generate.include?("      attr_reader planted: Integer?\n")

    YardFields.document
    puts YARD::Registry.at("Memscope::HeapGraph::Strings#planted").tag(:return).text
  RUBY

  # It compiles the whole extension, in 50 CPU seconds.
  only_in_full def test_a_field_is_its_line_in_the_table_and_its_source
    skip "the extension is built without a sanitizer" if ChildProcess::SANITIZER
    skip "yard is in no bundle" if ChildProcess::WITHOUT_BUNDLE
    Dir.mktmpdir do |directory|
      FileUtils.cp_r(%w[lib ext rakelib].map { |part| File.join(ChildProcess::ROOT, part) }, directory)
      [TABLE, SOURCE].each { |path, *change| plant(File.join(directory, path), *change) }
      build(directory)
      gems = %w[rake yard].flat_map { |name| Gem.loaded_specs.fetch(name).full_require_paths }
      result = ChildProcess.run_command(RbConfig.ruby, *["lib", *gems].map { |path| "-I#{path}" }, "-e", READ,
                                        chdir: directory)

      assert_predicate result, :success?, result.to_s
      assert_equal "a number\n", result.out
    end
  end

  private

  def plant(path, place, text)
    source = File.read(path)

    assert_match place, source
    File.write(path, source.sub(place, text))
  end

  # Compiles without optimization, which halves the time.
  def build(directory)
    target = File.join(directory, "build")
    FileUtils.mkdir(target)
    [[RbConfig.ruby, "../ext/memscope/extconf.rb"], ["make", "-j#{Etc.nprocessors}", "CFLAGS=-fPIC"]].each do |command|
      result = ChildProcess.run_command(*command, chdir: target, timeout: 600)

      assert_predicate result, :success?, result.to_s
    end
    FileUtils.cp(File.join(target, "memscope.so"), File.join(directory, "lib/memscope/memscope.so"))
  end
end
