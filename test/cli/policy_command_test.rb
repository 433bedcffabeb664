# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/groups"
require "memscope/cli"
require "stringio"
require "tempfile"

class CLIPolicyTest < MemscopeTest
  # 35 minutes, 30 of them above the soft limit.
  READINGS = Groups.take(([1500] * 10) + ([1700] * 60), workers: { 1 => { private: 400 }, 2 => { private: 500 } })

  def test_what_a_policy_would_have_done
    out, status = policy(READINGS, "--rules", "jitter=0")

    assert_equal 0, status
    assert_match(/\A70 readings over 35 minutes: 2 x restart\. The last: The working set is 1,700\.0\n/, out)
    assert_match(/^1970-01-01 10:42:10 UTC  restart worker 2 \(pid 102\)$/, out)
    assert_match(/^1970-01-01 10:57:10 UTC  restart worker 1 \(pid 101\)$/, out)
    assert_operator out.lines.map { |line| line.chomp.length }.max, :<=, 80
  end

  def test_json_has_each_decision
    out, status = policy(READINGS, "--json")
    decisions = out.lines.map { |line| Memscope::Policy::Decision.from_json(line) }

    assert_equal 0, status
    assert_equal READINGS.map(&:at), decisions.map(&:at)
    assert_equal({ none: 68, restart: 2 }, decisions.map(&:action).tally)
  end

  def test_other_rules
    assert_match(/: 3 x restart/, policy(READINGS, "--rules", "soft=0.7,interval_seconds=600").first)
    assert_match(/nothing would have been done/, policy(READINGS, "--rules", "soft=0.9").first)
  end

  # The server acted by itself, and what it did is in its readings.
  def test_what_was_carried_out_counts
    done = Groups.outcome(:restart, 2, 1300, returned: 20, expected: 300)
    readings = READINGS.map { |group| group.seconds > done[:seconds] ? group.with(outcomes: [done]) : group }

    assert_match(/1 x restart\. .*restarting does not help/m, policy(readings).first.tr("\n", " "))
  end

  { %w[--rules sft=1] => "--rules: given :sft, allowed: soft, hard, ",
    %w[--rules soft=abc] => "--rules: soft: given \"abc\", allowed: a number from 0.1 to 1",
    %w[--rules soft] => "--rules: soft: given nil, allowed: a number from 0.1 to 1" }.each do |arguments, message|
    define_method("test_wrong_#{arguments.last}") do
      out, status = policy(READINGS, *arguments)

      assert_equal 64, status
      assert_operator out, :start_with?, "memscope policy: #{message}"
    end
  end

  def test_readings_of_several_servers
    others = READINGS.map { |group| Memscope::Policy::Group.from_h(group.to_h.merge(pid: group.pid + 1)) }
    out, status = policy(READINGS.zip(others).flatten)

    assert_equal 74, status
    assert_match(/: readings of several servers alternate \(pid \d+ on \S+, pid \d+ on \S+\); give a file with/, out)
    assert_equal 0, policy(READINGS.first(35) + others.last(35)).last, "a restarted server"
    again = READINGS.first(20) + others[20, 20] + READINGS.last(10)

    assert_equal 0, policy(again).last, "ten minutes later, in a container, with the same pid"
  end

  def test_files_that_are_none
    assert_equal ["memscope policy: no file given; allowed: --rules NAME=NUMBER,..., --json, --output FILE, --help, " \
                  "FILE\n", 64], memscope("policy")
    assert_equal ["memscope policy: FILE /none: No such file or directory\n", 74], memscope("policy", "/none")
    assert_match(/: has no reading$/, policy([]).first)
    out, status = policy([READINGS.first, Memscope.cgroup])

    assert_equal 74, status
    assert_match(/:2: kind: given "cgroup", allowed: group$/, out)
  end

  private

  def policy(readings, *arguments)
    Tempfile.create("groups") do |file|
      file.puts(readings.map(&:to_json))
      file.close
      memscope("policy", *arguments, file.path)
    end
  end

  # What it printed, and its exit status.
  def memscope(*arguments)
    io = StringIO.new
    status = Memscope::CLI.run(arguments, out: io, err: io)
    [io.string, status]
  end
end
