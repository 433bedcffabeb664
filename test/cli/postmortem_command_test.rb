# frozen_string_literal: true

require_relative "../test_helper"
require "minitest/mock"
require_relative "../support/black_boxes"
require_relative "../support/command_line"

class CLIPostmortemTest < MemscopeTest
  include BlackBoxes
  include CommandLine

  GONE = { boot_id: "another" }.freeze
  NATIVE = Memscope.const_get(:Native)

  def test_one_death_is_explained
    printed("7-1.box" => body(pid: 7, identity: GONE, **slots)) do |directory|
      [[directory], [File.join(directory, "7-1.box")]].each do |arguments|
        assert_match(/· pid 7\n\n  Ended without a word.*orders#index/m, printed_by("postmortem", *arguments))
      end
      assert_match(/\A(`+)text\nmemscope .*\n\1\n\z/m, printed_by("postmortem", directory, "--markdown"))
    end
  end

  def test_deaths_are_listed
    deaths = { "7-1.box" => body(pid: 7, identity: GONE), "8-1.box" => body(pid: 8, identity: GONE, seen: NOW),
               "9-1.box" => body(pid: 9, identity: { pid: Process.pid, started: CURRENT.started }) }
    printed(deaths) do |directory|
      lines = printed_by("postmortem", directory).lines

      assert_match(/^ +last seen \(UTC\) +ended +MiB +pid$/, lines.first)
      assert_match(/^ +[\d :-]+ +unknown +480.0 +8  puma worker 2, 4f2c$/, lines.last)
      assert_equal 3, lines.size
      json = printed_by("postmortem", directory, "--json").lines

      assert_equal([7, 8], json.map { |line| Memscope::Postmortem.from_json(line).pid })
    end
  end

  def test_by_pid
    deaths = { "7-1.box" => body(pid: 7, identity: GONE), "7-2.box" => body(pid: 7, identity: GONE, seen: NOW) }
    printed(deaths) do |directory|
      Memscope::Boxes.stub(:directories, [directory]) do
        assert_match(/from .*7-2\.box$/, printed_by("postmortem", "--pid", "7"))
        assert_equal [74, "memscope postmortem: no black box of a process 8"], refused("postmortem", "--pid", "8")
      end
    end
  end

  def test_nothing_is_found
    printed({}) do |directory|
      assert_equal "no process with a black box has ended\n", printed_by("postmortem", directory)
      assert_equal [74, "memscope postmortem: #{directory}/x: not there"], refused("postmortem", "#{directory}/x")
    end
    assert_equal 64, refused("postmortem", "a", "b").first
  end

  private

  def printed(bodies)
    planted(bodies) do |directory, source|
      NATIVE.stub(:read_black_box, source.method(:read_black_box)) { yield directory }
    end
  end
end
