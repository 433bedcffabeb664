# frozen_string_literal: true

require_relative "../test_helper"

# How docs/benchmarks.md is made, and that it is of these benchmarks.
class BenchmarksTest < MemscopeTest
  BENCHMARK = <<~'RUBY'
    # frozen_string_literal: true

    # What a planted benchmark measures. It takes
    # two lines to say so.
    #
    # And this is for those who run it.

    $stdout.sync = true
    puts "planted 1.50 × its floor, of #{ENV.fetch('ROUNDS')} rounds  (goal ≤ 1)"
    $stderr.puts "and a word on standard error"
    exit 1
  RUBY

  def setup
    skip "rake is in no bundle" if ChildProcess::WITHOUT_BUNDLE
    require "rake"
    Rake.load_rakefile(File.join(ChildProcess::ROOT, "rakelib/docs.rake")) unless defined?(Docs)
  end

  def test_a_missed_goal_is_in_the_page_like_any_other_line
    page = planted { |file| Benchmarks.page({ file => { "ROUNDS" => "7" } }) }

    assert_includes page, "What a planted benchmark measures. It takes two lines to say so.\n"
    refute_includes page, "for those who run it"
    assert_includes page, "planted 1.50 × its floor, of 7 rounds  (goal ≤ 1)\nand a word on standard error\n```\n"
    assert_includes page, "Its exit status says that a goal is missed.\n"
    assert_match(/^\$ ROUNDS=7 bundle exec ruby -Ilib .*benchmark/, page)
  end

  def test_the_page_tells_the_machine_the_date_and_the_load
    page = File.read(File.join(ChildProcess::ROOT, "docs/benchmarks.md"), encoding: "UTF-8")

    assert_match(/^\| on \| \d+ [A-Z][a-z]+ 20\d\d \|$/, page)
    assert_match(/^\| load average \| [\d.]+ before, [\d.]+ after/, page)
    [*Benchmarks.machine.keys, *Benchmarks::PEERS].each { |name| assert_includes page, name }
    assert_match(/^\| processor \| \S.*, \d+ in use \|$/, page)
    Benchmarks::FORMS.each_key { |file| assert_includes page, "bundle exec ruby -Ilib #{file}\n" }
  end

  private

  def planted
    Dir.mktmpdir do |directory|
      file = File.join(directory, "benchmark.rb")
      File.write(file, BENCHMARK)
      Dir.chdir(ChildProcess::ROOT) { yield file }
    end
  end
end
