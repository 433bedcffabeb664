# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/remote/attached"

# The part of `memscope attach` that runs in the process.
class AttachedTest < MemscopeTest
  Attached = Memscope.const_get(:Attached)

  def test_it_keeps_a_history_until_the_listener_is_closed
    ended = in_child(<<~RUBY)
      require "memscope/remote/attached"
      thread = Thread.new { Memscope::Attached.run }
      sleep 0.01 until Memscope::History.running? && Memscope.history.known?
      print Memscope.verdict.word
      Memscope::Listener.current.close
      thread.join(30)
      print Memscope::History.running?
      sleep 0.01 until Thread.list.none? { |one| one.name.to_s.start_with?("memscope") }
    RUBY

    assert_equal "too earlyfalse", ended
  end

  # Whether the program is sampled once it listens no longer.
  def sampled_afterwards(preparation)
    in_child(<<~RUBY)
      require "memscope/remote/attached"
      #{preparation}
      thread = Thread.new { Memscope::Attached.run }
      sleep 0.01 until Memscope::Listener.current
      Memscope::Listener.current.close
      thread.join(30)
      print Memscope::History.running?
    RUBY
  end

  def test_the_program_s_own_history_goes_on
    assert_equal "true", sampled_afterwards("Memscope::History.start")
  end

  def test_a_program_without_the_setting_is_not_sampled
    assert_equal "false", sampled_afterwards("Memscope.configure { |config| config.history = false }")
  end

  def test_it_runs_until_the_listener_is_closed
    ended = in_child(<<~RUBY)
      require "memscope/remote/attached"
      thread = Thread.new { Memscope::Attached.run(actions: false) }
      sleep 0.01 until Memscope::Listener.current
      print [Memscope::Configuration.so_far.actions, thread.alive?].inspect
      Memscope::Listener.current.close
      print thread.join(30).equal?(thread)
    RUBY

    assert_equal "[false, true]true", ended
  end

  def test_it_ends_without_clients
    ended = in_child(<<~RUBY)
      require "memscope/remote/attached"
      Memscope::Attached.send(:remove_const, :IDLE_SECONDS)
      Memscope::Attached::IDLE_SECONDS = 0
      Memscope::Attached.run
      print Memscope::Listener.current.inspect
    RUBY

    assert_equal "nil", ended
  end

  # The job that evaluates a text may only create a thread.
  def test_texts
    text = Attached.text(["/a\"b", "/c"], actions: true)

    assert_match(/\A::Thread\.new do .*^end\n\z/m, text)
    assert_includes text, "\"/a\\\"b\""
    [text, Attached::CLOSING_TEXT].each { |ruby| assert RubyVM::InstructionSequence.compile(ruby) }
  end

  private

  def in_child(program)
    Dir.mktmpdir do |directory|
      environment = { "MEMSCOPE_SOCKETS" => directory }
      IO.popen([environment, RbConfig.ruby, "-W0", "-I#{ChildProcess::ROOT}/lib", "-rmemscope", "-e", program], &:read)
    end
  end
end
