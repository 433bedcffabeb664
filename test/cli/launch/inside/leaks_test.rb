# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/profiled_programs"

# `memscope leaks -- COMMAND`, in programs of their own. Of objects, see profile_test.rb.
class ProgramLeaksTest < MemscopeTest
  parallelize_me!

  include ProfiledPrograms

  def leaks(*options, script: LEAK)
    launch("leaks", "--warmup=60", *options, "--", *keeper(script))
  end

  def test_what_grows_past_the_threshold_fails
    ran = leaks("--threshold=4000000", "--json")

    verdict = /^memscope leaks: leak: one line grew past 3\.8 MiB: .*keeper\.rb:4 in .*keep by [45]\.\d MiB/

    assert_exit 1, ran, out: "done\n", err: verdict
    assert_keeper profile(ran), 4
    assert_equal [1], profile(ran).stacks.map(&:generation).uniq
  end

  # The line that allocates is the standard library's.
  def test_the_line_that_called_is_named
    script = LEAK.sub('"x" * 10_000', "Psych.load('x' * 10_000)")
    verdict = /one line grew past 3\.8 MiB: \S+psych\S+ in .* by [45]\.\d MiB .*, called from keeper\.rb:5$/
    ran = launch("leaks", "--warmup=60", "--threshold=4000000", "--", *keeper("require 'psych'\n#{script}"),
                 chdir: directory)

    assert_exit 1, ran, out: "done\n", err: verdict
  end

  def test_less_than_the_threshold_does_not
    assert_exit 0, leaks("--threshold=6000000"), out: "done\n", err: /no line grew past 5\.7 MiB$/
  end

  def test_a_cache_that_was_full_and_churn_do_not
    quiet = LEAK.sub("keep(525)", "churn(525)")

    assert_exit 0, leaks("--threshold=100000", script: quiet), out: "done\n", err: /no line grew past/
  end

  def test_a_failure_of_the_program_stays_its_own
    assert_exit 3, leaks(script: "#{LEAK}exit 3"), err: /one line grew/
    assert_exit 1, leaks(script: "#{LEAK}exit 0"), err: /one line grew/
  end

  def test_what_it_forks_is_not_judged
    script = "#{LEAK.sub('keep(525)', '')}Process.wait(fork { keep(525) })\nexit($?.exitstatus)"

    assert_exit 0, leaks(script: script), err: /\A.*no line grew past 1\.0 MiB\n\z/m
  end

  def test_a_program_that_ends_within_its_warm_up_is_not_judged
    ran = leaks(script: KEEPER)

    assert_exit 74, ran, out: "done\n", err: /too early: the program ended within its warm-up/
  end
end
