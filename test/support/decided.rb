# frozen_string_literal: true

require_relative "groups"

# Tests of a policy's decisions on readings of a group.
module Decided
  MEBIBYTE = Groups::MEBIBYTE
  # Worker 2 has 300 MiB more than the others.
  FAT = { 2 => { private: 500 } }.freeze
  HOUR = 3600

  def decide(*arguments, policy: Memscope::Policy.new, **options)
    policy.decide(Groups.take(*arguments, **options))
  end

  def assert_restart(index, decision)
    assert_equal [:restart, index], [decision.action, decision.worker&.index], decision.reason
  end

  def assert_none(pattern, decision)
    assert_equal :none, decision.action, decision.reason
    assert_nil decision.worker
    assert_nil decision.expected_bytes
    assert_match pattern, decision.reason
  end
end
