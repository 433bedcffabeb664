# frozen_string_literal: true

require_relative "test_helper"

# The file that a test helper requires. Of the assertions, see test/check/assertions_test.rb.
class RequireAssertionsTest < MemscopeTest
  def test_it_loads_what_assertions_need
    ran = ChildProcess.run(<<~RUBY, ruby_args: ["--disable-gems"])
      require "memscope/assertions"
      include Memscope::Assertions
      def assert(passed, message) = puts(passed, message)
      assert_allocates(objects: 0) { nil }
      assert_allocates("parse", Object => 1) { 2.times { Object.new } }
    RUBY

    assert_match(/\Atrue\n\nfalse\nparse\n +Object: 2 allocated, allowed: 1$/, ran.out, ran)
  end
end
