# frozen_string_literal: true

require_relative "../../test_helper"

class WorkersClusterTest < MemscopeTest
  # Puma's master collects before it forks, so that its later GCs write to no page that it shares with its workers.
  def test_objects_are_old_before_a_fork_and_little_garbage_is_left_alone
    aged, collections = child_json(<<~RUBY, requires: %w[json memscope])
      require "memscope/remote/workers/cluster"
      cluster = Memscope::Workers::Cluster.new
      GC.start
      old = GC.stat(:old_objects)
      kept = Array.new(50_000) { Object.new }
      cluster.prepare_fork
      counts = [GC.count]
      cluster.send(:tidy)
      counts << GC.count
      100_000.times { Object.new }
      cluster.send(:tidy)
      puts JSON.generate([GC.stat(:old_objects) - old, [*counts, GC.count]])
      kept.clear
    RUBY

    assert_operator aged, :>=, 45_000
    assert_equal collections[0], collections[1]
    assert_operator collections[2], :>, collections[1]
  end
end
