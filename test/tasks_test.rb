# frozen_string_literal: true

require_relative "test_helper"

# The file that a Rakefile requires. Of what the tasks do, see test/cli/tasks_test.rb.
class RequireTasksTest < MemscopeTest
  def test_defining_tasks_does_not_load_memscope
    ran = ChildProcess.run("puts Rake.application.tasks.map(&:to_s), defined?(Memscope.rss).inspect",
                           gems: true, requires: ["memscope/tasks"])

    assert_equal [*%w[census doctor heap purge report].map { |name| "memscope:#{name}\n" }, "nil\n"], ran.out.lines
  end
end
