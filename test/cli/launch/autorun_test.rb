# frozen_string_literal: true

require_relative "../../test_helper"

class AutorunTest < MemscopeTest
  AUTORUN = File.join(ChildProcess::ROOT, "lib/memscope/cli/launch/autorun.rb")

  def loaded(script, env = {})
    ChildProcess.run_command(RbConfig.ruby, "--disable-gems", "-e", script, AUTORUN, env: env)
  end

  def test_without_an_order_nothing_else_of_memscope_is_loaded
    ran = loaded("load ARGV.first; puts $LOADED_FEATURES.grep(%r{lib/memscope}).map { |path| File.basename(path) }")

    assert_equal ["handoff.rb\ninside.rb\n", ""], [ran.out, ran.err]
  end

  def test_an_order_for_another_process_is_not_carried_out
    order = [Marshal.dump({ pid: 1 })].pack("m0")
    ran = loaded("load ARGV.first; p ENV.keys.grep(/AUTORUN/)", { "MEMSCOPE_AUTORUN_PROOF" => order })

    assert_equal ["[]\n", ""], [ran.out, ran.err]
  end

  def test_an_older_ruby_says_so_and_goes_on
    ran = loaded("$VERBOSE = nil; RUBY_VERSION = '3.0.7'; load ARGV.first; puts $LOADED_FEATURES.grep(/handoff/).size")

    assert_equal ["0\n", "memscope: needs Ruby 3.1 or newer, and this program is run by 3.0.7: it does nothing here\n"],
                 [ran.out, ran.err]
  end
end
