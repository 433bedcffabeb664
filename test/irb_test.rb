# frozen_string_literal: true

require_relative "test_helper"

# What the command does: test/cli/console_test.rb.
class IrbTest < MemscopeTest
  def test_an_old_irb_is_refused
    ran = ChildProcess.run(<<~RUBY, gems: true)
      $LOADED_FEATURES << "irb.rb"
      module IRB
        VERSION = "1.4.1"
      end
      def require(name) = name == "irb" || super
      begin
        require "memscope/irb"
      rescue LoadError => e
        puts e.message
      end
    RUBY

    assert_equal "memscope/irb needs IRB 1.13 or newer, and this is 1.4.1: add `gem \"irb\", \">= 1.13\"` to the " \
                 "Gemfile\n", ran.out
  end
end
