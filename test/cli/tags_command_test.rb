# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/cli/cli"
require "stringio"

# memscope tags --pid: what another process has counted and sampled by tag.
class CLITagsTest < MemscopeTest
  include Listening

  # Keeps two objects a run, on demand. On one line.
  SCRIPT = <<~RUBY.lines(chomp: true).join("; ").freeze
    $kept = []
    Memscope::ObjectProfile.start(budget: 1)
    def run(times) = times.times { Memscope.tag("keep") { $kept << Object.new << Object.new } } && GC.start
  RUBY

  def setup
    super
    skip_under_sanitizer
  end

  def tags(*arguments)
    out = StringIO.new
    err = StringIO.new
    [Memscope::CLI.run(["tags", *arguments], out: out, err: err), out.string, err.string]
  end

  def let(process, line)
    process.tell(line)
    process.gets
  end

  both_allocators "a_process_that_listens" do |preload|
    process = listening(SCRIPT, preload: preload)
    3.times { let(process, "run(1000)") }
    status, out, err = tags("--pid", process.pid.to_s, "--json")
    row = Memscope::Tags.from_json(out).first

    assert_equal [0, "", "keep", 3000], [status, err, row.name, row.runs]
    assert_in_delta 2000, row.retained_objects, 5 * row.retained_objects_error
    assert_equal preload.nil?, row.malloc_allocated_bytes.nil?
    assert_match(/^ +[12],\d{3} +\d+ +3,000 .* keep$/, tags("--pid", process.pid.to_s, "--top", "1")[1])
  end

  def test_what_is_refused
    assert_equal [64, "", "memscope tags: no process given; allowed: --pid N, --socket PATH\n"], tags
    status, _out, err = tags("--pid", "1", "--top", "0")

    assert_equal 64, status
    assert_match(/\Amemscope tags: --top: given "0", allowed: a number from 1 to 10000/, err)
  end
end
