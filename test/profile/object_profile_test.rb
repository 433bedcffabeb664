# frozen_string_literal: true

require_relative "../test_helper"

class ObjectProfileArgumentsTest < MemscopeTest
  PROFILE = Memscope::ObjectProfile

  { budget: [0, -0.01, 1.5, nil, "1 %", Float::NAN], holders: [nil, 1] }.each do |argument, wrong|
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
      error = assert_raises(Memscope::Unavailable) { PROFILE.public_send(call) }

      assert_match(/no object profile is running/, error.message)
    end
  end

  def test_rubies_that_crash_are_refused
    crashing = %w[3.2.0 3.2.2].map { |version| PROFILE.obstacle(version) }

    assert(crashing.all? { |message| message.include?("Bug #19482") && message.include?("3.2.3") })
    assert_nil PROFILE.obstacle
  end

  # An option of memscope 0.1.0.
  def test_unknown_options_are_refused
    error = assert_raises(ArgumentError) { PROFILE.start(ractors: :never) }

    assert_equal "unknown keyword: :ractors", error.message
    refute_predicate PROFILE, :running?
  end
end
