# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/launching"
require_relative "../support/object_leaks"

# `memscope leaks --objects` names first the line that leaks, and what holds its objects, for many kinds of leaks. Some
# of them here; all of them in rake battery:object_leaks.
class ObjectLeaksTest < MemscopeTest
  parallelize_me!

  include Launching

  # Held by a thread, by a block, and by Ruby's table of finalizers.
  HERE = %w[thread_locals closure finalizer_procs].freeze
  CHOSEN = ObjectLeaks::ALL.select { |leak| ENV.key?("MEMSCOPE_ALL_LEAKS") || HERE.include?(leak.name) }

  CHOSEN.each do |leak|
    define_method("test_the_line_that_leaks_is_first_#{leak.name}") do
      ran = leaks(leak)
      first = ran.err[/ grew past [\d,]+ objects: ([^;\n]+)/, 1].to_s
      lines = first.scan(/leaking\.rb:(\d+)/).flatten.map(&:to_i)

      assert_equal 1, ran.status.exitstatus, ran
      refute_empty lines & leak.lines, "not line #{leak.lines.join(' or ')}: #{ran}"
      assert_operator leak, :held_by?, first[/held by (.+)/, 1].to_s, ran
    end
  end

  def test_nothing_is_said_of_healthy_traffic
    ran = leaks(ObjectLeaks::NONE)

    assert_exit 0, ran, err: /no line grew past 1,600 objects$/
  end

  private

  def leaks(leak)
    launch("leaks", "--objects", "--warmup=0.1", "--threshold=#{leak.requests / 5}", "--",
           *RUBY, make("leaking.rb", leak.program))
  end
end
