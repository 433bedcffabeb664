# frozen_string_literal: true

require_relative "../test_helper"

class DocsTest < MemscopeTest
  def setup
    skip "yard is in no bundle" if ChildProcess::WITHOUT_BUNDLE
    require "rake"
    Rake.load_rakefile(File.join(ChildProcess::ROOT, "rakelib/docs.rake")) unless defined?(Docs)
  end

  def test_the_pages_that_are_made_are_current
    Dir.chdir(ChildProcess::ROOT) do
      Docs::PAGES.each_key do |page|
        assert_equal Docs.generate(page), File.read("docs/#{page}.md", encoding: "UTF-8"), "run rake docs:#{page}"
      end
    end
  end
end
