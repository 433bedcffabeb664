# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/decided"

# The values that a policy takes and returns.
class PolicyGroupTest < MemscopeTest
  include Decided

  def test_json
    purge = Groups.outcome(:purge, 1, 9)
    group = Groups.take(1700, workers: { 1 => { leak: 3, private: 3 } }, outcomes: [purge]).last

    [group, decide(1700, workers: FAT), decide(1500)].each do |value|
      assert_equal value, value.class.from_h(JSON.parse(value.to_json))
    end
  end

  # puma_worker_killer#8, #14, #106: the sum of RSS counts shared pages for each worker.
  def test_shared_pages_counted_per_worker_killed_workers_for_ever
    assert_none(/below the soft limit/, decide(1000, workers: (0..3).to_h { |index| [index, { private: 900 }] }))
  end
end
