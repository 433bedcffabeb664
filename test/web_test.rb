# frozen_string_literal: true

require_relative "test_helper"

# The file that a program requires. Of the pages, see test/web/.
class RequireWebTest < MemscopeTest
  def test_it_says_what_to_add_to_the_gemfile
    ran = ChildProcess.run("begin; require 'memscope/web'; rescue LoadError => e; puts e.message; end",
                           ruby_args: ["--disable-gems"])

    assert_includes ran.out,
                    "memscope/web needs the gem rack, which is not installed: add `gem \"rack\", \">= 2.2\"` to"
  end
end
