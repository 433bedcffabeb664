# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/exporting"

# The file that a program requires. Of what it exports, see test/setup/yabeda_test.rb.
class RequireYabedaTest < MemscopeTest
  include Exporting

  def test_it_loads_what_it_needs = assert_loads_what_it_needs("memscope/yabeda")

  def test_it_says_what_to_add_to_the_gemfile = assert_says_what_to_add("memscope/yabeda", "yabeda")

  def test_a_gem_that_is_broken_is_not_called_missing
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "yabeda.rb"), 'require "something_else_that_is_not_there"')
      ran = ChildProcess.run('begin; require "memscope/yabeda"; rescue LoadError => e; puts e.message; end',
                             ruby_args: ["--disable-gems", "-I#{directory}"])

      assert_match(/cannot load such file -- something_else/, ran.out)
    end
  end
end
