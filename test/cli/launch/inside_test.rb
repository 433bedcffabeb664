# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/reporting_programs"

# The life cycle of what memscope does in a program that it has become.
class ProgramInsideTest < MemscopeTest
  include ReportingPrograms

  parallelize_me!

  def test_only_the_process_that_was_started_reports
    ran = report("--json", "--", *ruby(<<~RUBY))
      puts Process.pid
      Process.wait(fork { at_exit { puts "forked" } })
      system(*#{RUBY}, "-e", #{"at_exit { puts 'ended' }; p #{TRACES}".dump})
    RUBY

    assert_exit 0, ran
    assert_equal ["forked", "[]", "ended"], ran.out.lines(chomp: true).drop(1)
    assert_one_report(ran, pid: ran.out.to_i)
  end

  def test_what_it_becomes_by_exec_reports_when_it_is_ruby
    ran = report("--json", "--", *ruby("puts Process.pid; exec(*#{RUBY}, '-e', 'puts Process.pid')"))

    assert_one_report(ran, pid: ran.out.to_i)
    assert_equal 1, ran.out.lines.uniq.size
    assert_empty ledgers(report("--json", "--", *ruby('exec("true")')).err)
  end

  def test_it_comes_after_the_programs_own_handlers
    ran = report("--", *ruby('at_exit { warn "mine" }; at_exit { at_exit { warn "late" } }'))

    assert_match(/\Alate\nmine\nmemscope /, ran.err)
  end

  def test_nothing_goes_to_the_programs_output
    assert_empty report("--every=0.1", "--", *ruby(until_reported(1))).out
  end

  def test_a_reading_that_fails_lets_the_program_end
    broken = <<~RUBY
      module Memscope
        def self.ledger(**) = raise(IOError, "broken")
        def self.supported? = true
      end
      exit 3
    RUBY

    assert_exit 3, report("--", *ruby(broken)), err: "memscope report: no report: broken (IOError)\n"
    assert_exit 3, report("--", *ruby("$stderr.close; STDERR.close rescue nil; exit 3")), out: ""
  end

  def test_a_page_with_commands_for_the_process_says_that_it_ends
    ran = report("--", *ruby(<<~'RUBY'))
      module Memscope
        def self.ledger(**) = Class.new { def to_s(**) = "> memscope purge --pid #{Process.pid} trim\n" }.new
        def self.supported? = true
      end
      puts Process.pid
    RUBY
    pid = ran.out.to_i

    assert_exit 0, ran, err: "> memscope purge --pid #{pid} trim\n\n  Process #{pid} ends here. With --pid, name one " \
                             "that still runs.\n"
  end

  # Nothing can be read any more, and the program has a class of the same name as one of memscope's.
  def test_a_program_without_descriptors_ends_as_it_would
    ran = report("--", *ruby(<<~RUBY))
      class Words; end
      Process.setrlimit(:NOFILE, 20)
      kept = []
      begin
        loop { kept << File.open("/dev/null") }
      rescue SystemCallError
        exit 3
      end
    RUBY

    assert_exit 3, ran, err: /\Amemscope report: no report: cannot load such file -- \S+ \(LoadError\)\n\z/
  end

  def test_memscope_is_loaded_at_the_end_only
    ran = report("--json", "--", *ruby("p defined?(Memscope.ledger), $LOAD_PATH & #{ChildProcess::LOAD_PATH}"))

    assert_exit 0, ran, out: "nil\n[]\n"
    assert_one_report(ran)
  end

  def test_a_program_that_uses_memscope_itself
    places = ChildProcess::LOAD_PATH.map { |place| "-I#{place}" }
    ran = report("--json", "--", *RUBY, *places, "-rmemscope", "-e", "p Memscope.rss.positive?")

    assert_exit 0, ran, out: "true\n"
    assert_one_report(ran)
  end

  def test_a_file_that_has_been_replaced_by_a_link
    File.symlink(path("target"), path("out"))
    files = %w[memscope/cli/launch memscope/cli/launch/inside memscope/cli/launch/inside/report]
    ran = ChildProcess.run(<<~RUBY, requires: files)
      order = { title: "report", output: #{path('out').dump}, calls: { ledger: {} } }
      Memscope::Launch::ProgramReport.new(order).start
    RUBY

    assert_exit 0, ran, err: /\Amemscope report: Too many levels of symbolic links.*The kernel says/m
    refute_path_exists path("target")
  end
end
