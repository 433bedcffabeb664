# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/interrupted_profile"

class ProfilerTest < MemscopeTest
  include InterruptedProfile

  def test_an_interrupted_start_leaves_no_profile_running
    answers = child_json("#{INTERRUPT}\nputs JSON.generate(%i[start_profile start_session].map(&attempt))",
                         requires: %w[json memscope])

    assert_equal [["as Timeout does", false, false]] * 2, answers
  end

  def test_a_killed_thread_leaves_no_profile_running
    running, again = child_json(<<~RUBY, requires: %w[json memscope])
      #{INTERRUPT}
      killed = Thread.new do
        at_return.call(:start_profile) { Thread.current.then { |victim| Thread.new { victim.kill }.join } }
        Memscope.malloc_profile(backend: :imports) { sleep }
      end
      killed.join
      puts JSON.generate([Memscope::MallocProfile.running?, Memscope.malloc_profile(backend: :imports) { nil }.kind])
    RUBY

    refute running
    assert_equal "profile", again
  end
end
