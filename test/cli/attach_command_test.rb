# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/cli/cli"
require "stringio"
require_relative "../support/bystander"

# Processes that have not loaded memscope, and then listen.
class CLIAttachTest < MemscopeTest
  include Bystander

  SLEEP = "puts; $stdout.flush; sleep"
  BUSY = "2.times { Thread.new { loop { Array.new(100) { 'a' * 50 } } } }; #{SLEEP}".freeze

  both_allocators "from loading to closing" do |preload|
    running(SLEEP, preload: preload) do |pid|
      assert_match(/\Aprocess #{pid} runs Ruby #{RUBY_VERSION} and can be made to listen/, attach(pid, "--check"))
      refute_includes File.read("/proc/#{pid}/maps"), "memscope.so"
      assert_match(/\Aprocess #{pid} listens\. Its main thread was stopped for [\d.]+ m?s/, attach(pid))
      assert_equal pid, Memscope::Client.new(pid).call(:snapshot).pid
      assert_match(/allows no actions/, assert_raises(Memscope::Client::Failed) { purge(pid) }.message)
      assert_match(/listens already\. It allows what its own settings allow/, attach(pid))
      assert_match(/no longer listens/, attach(pid, "--close"))
      assert_match(/does not listen/, attach(pid, "--close"))
      assert_match(/\Aprocess #{pid} listens\./, attach(pid))
    end
  end

  def test_a_busy_process
    running(BUSY) do |pid|
      attach(pid, "--actions")

      assert_instance_of Memscope::Purge::Result, purge(pid)
    end
  end

  def test_actions_are_allowed_only_if_asked_for
    running(SLEEP) do |pid|
      attach(pid, "--actions")
      attach(pid, "--close")
      attach(pid)

      assert_match(/allows no actions/, assert_raises(Memscope::Client::Failed) { purge(pid) }.message)
      attach(pid, "--actions") # without --close

      assert_instance_of Memscope::Purge::Result, purge(pid)
      assert_equal :rss, Memscope::Client.new(pid).call(:history).series.first
    end
  end

  def test_a_program_that_has_loaded_memscope_keeps_its_settings
    running("require 'memscope'; #{SLEEP}", options: ["-I#{ChildProcess::ROOT}/lib"]) do |pid|
      attach(pid)

      assert_instance_of Memscope::Purge::Result, purge(pid)
    end
  end

  def test_actions_are_not_allowed_after_an_attempt_that_failed
    running("module Kernel; alias_method :original, :require
               def require(name)
                 name.end_with?('/attached') && !$tried ? raise(LoadError, $tried = 'no') : original(name)
               end
             end; #{SLEEP}") do |pid|
      assert_match(/could not load memscope: LoadError/, refused(pid))
      attach(pid)

      assert_match(/allows no actions/, assert_raises(Memscope::Client::Failed) { purge(pid) }.message)
    end
  end

  # The text that loads memscope is evaluated within the method, which ends if a variable of it changes.
  def test_a_method_s_variables_and_constants_are_its_own
    running("class Basic < BasicObject
               def wait
                 loaded = own = library = error = told = 0
                 ::Kernel.puts
                 ::STDOUT.flush
                 ::Kernel.sleep 0.01 while [loaded, own, library, error, told].sum.zero?
               end
             end
             Basic.new.wait") do |pid|
      attach(pid)

      assert_equal pid, Memscope::Client.new(pid).call(:snapshot).pid
      assert_match(/no longer listens/, attach(pid, "--close"))
    end
  end

  # It has booted: a Railtie would come too late.
  def test_a_rails_application_is_not_changed
    running("module Rails; class Railtie; def self.inherited(late) = raise(late.name); end; end; #{SLEEP}") do |pid|
      assert_match(/\Aprocess #{pid} listens\./, attach(pid))
    end
  end

  def test_what_is_no_ruby
    running("exec 'sleep', '100'", ready: false) do |pid|
      sleep 0.01 until File.read("/proc/#{pid}/comm") == "sleep\n"

      assert_match(/process #{pid} does not run a Ruby/, refused(pid))
    end
  end

  def test_usage
    assert_equal [64, "memscope attach: no process given; allowed: --pid N\n"], memscope.values_at(0, 2)
    assert_equal 64, memscope("--pid", "1", "--close", "--check").first
  end

  private

  def running(program, preload: nil, options: [], ready: true, &block)
    environment = { "LD_PRELOAD" => preload }
    super(RbConfig.ruby, "-W0", *options, "-e", program, env: environment, ready: ready, &block)
  end

  def attach(pid, *options)
    status, out, err = memscope("--pid", pid.to_s, *options)

    assert_equal [0, ""], [status, err]
    out
  end

  def refused(pid)
    status, _out, err = memscope("--pid", pid.to_s)

    assert_equal 74, status
    err
  end

  def purge(pid) = Memscope::Client.new(pid).call(:purge, levers: [])

  def memscope(*arguments)
    out = StringIO.new
    err = StringIO.new
    [Memscope.const_get(:CLI).run(["attach", *arguments], out: out, err: err), out.string, err.string]
  end
end
