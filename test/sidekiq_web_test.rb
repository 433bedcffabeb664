# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/exporting"

# The file that a program requires. Of the tab, see test/web/sidekiq_tab_test.rb.
class RequireSidekiqWebTest < MemscopeTest
  include Exporting

  def test_it_says_what_to_add_to_the_gemfile
    assert_says_what_to_add("memscope/sidekiq_web", "sidekiq", ">= 7.3")
  end
end
