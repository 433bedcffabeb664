# frozen_string_literal: true

require_relative "test_helper"

# The file that spec_helper.rb requires. Of the matchers, see test/check/rspec_test.rb.
class RequireRSpecTest < MemscopeTest
  def test_it_loads_what_matchers_need
    ran = ChildProcess.run(<<~RUBY, ruby_args: ["--disable-gems"])
      require "memscope/rspec"
      include Memscope::RSpec
      matcher = allocate_at_most(Object => 1)
      puts matcher.matches?(-> { Object.new }), matcher.matches?(-> { 2.times { Object.new } }), matcher.failure_message
    RUBY

    assert_match(/\Atrue\nfalse\nexpected the block to allocate at most 1 Object, but it allocates$/, ran.out, ran)
  end
end
