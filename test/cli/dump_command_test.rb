# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/command_line"

# With processes and programs of its own: test/acceptance/dump_test.rb.
class CLIDumpTest < MemscopeTest
  include CommandLine

  def test_files_to_write
    assert_equal [74, "memscope dump: --output #{File.expand_path(__FILE__)}: File exists; " \
                      "allowed: a file that does not exist yet, in a directory that can be written to"],
                 refused("dump", "-o", __FILE__, "--format", "objspace")
    assert_match(/memscope dump: --output x.weird: unknown format; allowed: --format, .*\.heapsnapshot/,
                 refused("dump", "-o", "x.weird").last)
  end

  def test_what_a_conversion_needs
    { %w[--from heap.json] => "--from needs --output FILE",
      %w[--from heap.json -o x.pftrace --gc] => "--from and --gc exclude each other",
      %w[--format yaml] => '--format: given "yaml", allowed: perfetto, heapsnapshot, objspace' }.each do |given, why|
      assert_equal [64, "memscope dump: #{why}"], refused("dump", *given)
    end
  end

  def test_files_that_are_no_dump
    Dir.mktmpdir("memscope") do |directory|
      File.write("#{directory}/heap.heapsnapshot", '{"snapshot":{')
      reads = "; allowed: the lines of ObjectSpace.dump_all or of memscope dump --format objspace"
      { "heap.heapsnapshot" => "the dump could not be read: not in the documented form#{reads}. " \
                               "memscope writes heapsnapshot, but does not read it",
        "none" => "No such file or directory#{reads}" }.each do |name, why|
        assert_equal [74, "memscope heap: #{directory}/#{name}: #{why}"], refused("heap", "#{directory}/#{name}")
        status, said = refused("dump", "--from", "#{directory}/#{name}", "-o", "#{directory}/to.pftrace")

        assert_equal 74, status
        assert_match(/\Amemscope dump: #{Regexp.escape(directory)}.*#{Regexp.escape(reads)}/, said)
      end
      assert_equal ["heap.heapsnapshot"], Dir.children(directory)
    end
  end
end
