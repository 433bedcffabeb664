# frozen_string_literal: true

require_relative "test_helper"

class ObjectProfileArgumentsTest < MemscopeTest
  PROFILE = Memscope::ObjectProfile

  { budget: [0, -0.01, 1.5, nil, "1 %", Float::NAN], ractors: [true, :none, 0],
    holders: [nil, 1] }.each do |argument, wrong|
    define_method("test_a_wrong_#{argument}_is_refused") do
      wrong.each do |given|
        error = assert_raises(ArgumentError) { PROFILE.start(argument => given) }

        assert_includes error.message, "#{argument}: given #{given.inspect}, allowed:"
      end
      refute_predicate PROFILE, :running?
    end
  end

  def test_without_a_block_nothing_starts
    error = assert_raises(ArgumentError) { Memscope.object_profile }

    assert_match(/no block given/, error.message)
    refute_predicate PROFILE, :running?
  end

  def test_nothing_is_read_unless_it_runs
    %i[snapshot stop next_generation].each do |call|
      error = assert_raises(PROFILE::Unavailable) { PROFILE.public_send(call) }

      assert_match(/no object profile is running/, error.message)
    end
  end

  def test_rubies_that_crash_are_refused
    crashing = %w[3.2.0 3.2.2].map { |version| PROFILE.obstacle(version, ractors: :never, alive: 1) }

    assert(crashing.all? { |message| message.include?("Bug #19482") && message.include?("3.2.3") })
    %w[3.1.4 3.2.3 3.3.0 3.4.1 4.0.0 4.1.0].each do |version|
      assert_nil PROFILE.obstacle(version, ractors: nil, alive: 1), version
    end
  end

  def test_beside_other_ractors_it_is_refused
    %w[3.1.0 3.1.4 4.0.5].each do |version|
      assert_match(/other Ractors are alive/, PROFILE.obstacle(version, ractors: :never, alive: 2))
    end
  end

  def test_rubies_that_crash_with_ractors_are_refused_unless_there_are_none
    %w[3.1.0 3.1.3].each do |version|
      assert_match(/Bug #18464.*ractors: :never/, PROFILE.obstacle(version, ractors: nil, alive: 1))
      assert_nil PROFILE.obstacle(version, ractors: :never, alive: 1)
    end
  end
end
