# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../../rakelib/site"

# The navigation, the links, llms.txt, and what loads from elsewhere: test/acceptance/site_test.rb builds it.
class SiteTest < MemscopeTest
  ROOT = ChildProcess::ROOT

  def site = Site.new

  def test_each_page_of_the_documentation_is_in_the_navigation_once
    files = Dir["{*,docs/**/*}.md", base: ROOT].sort

    assert_equal files, site.pages.map(&:file).sort, "site/navigation.yml lists the pages"
  end

  def test_each_link_leads_somewhere
    assert_empty site.broken
  end

  def test_the_files_that_pages_need_are_found
    assert_includes site.linked, "docs/grafana.json"
    assert_includes site.linked, "docs/web-overview.png"
    assert_empty site.linked.grep(/\.md\z/)
  end

  def test_a_link_that_leads_nowhere_is_found
    planted("# One\n\n[a](docs/none.md) [b](#two) [c](docs/two.md#there-it-is) [d](docs/two.md#here) `[e](f)`\n",
            "# Two\n\n## There, it is\n\n```\n# Here\n```\n") do |site|
      assert_equal ["README.md: docs/none.md", "README.md: README.md#two", "README.md: docs/two.md#here"], site.broken
    end
  end

  def test_anchors_are_those_of_github
    assert_equal %w[memory-grows-what-now policy_soft a-link-to-it same same-1],
                 Site.anchors("# Memory grows: what now?\n## policy_soft\n# `a` [link](x.md) to it\n# Same\n# Same\n")
  end

  def test_the_index_for_language_models_has_each_page
    lines = site.llms.lines(chomp: true)

    assert_equal "# memscope for Ruby", lines.first
    assert_match(/\A> Where every resident byte of a Ruby process is/, lines[2])
    assert_equal ["## Why", "## Questions", "## Run it", "## Reference", "## Optional"], lines.grep(/\A## /)
    assert_equal site.pages.size, lines.grep(%r{\A- \[[^\]]+\]\([\w/-]+\.md\): \S}).size
    assert_includes Site.new(url: "https://example.org/memscope/").llms, "(https://example.org/memscope/docs/tour.md)"
  end

  def test_what_would_load_from_elsewhere_is_found
    planted("# One\n\n[said](https://said.example/page)\n", "# Two\n") do |site|
      FileUtils.mkdir_p(File.join(site.output, "assets"))
      loads = ['<script src="https://cdn.example/a.js">', '<img alt="" src="//cdn.example/a.png">',
               '<link rel="stylesheet" href="https://cdn.example/a.css">', "url('https://cdn.example/a.woff2')",
               '@import "https://cdn.example/a.css"']
      loads.each do |load|
        write(site, "index.html", %(#{Site::POLICY}"><a href="https://fine.example/">#{load}</a>))

        assert_equal ["index.html"], site.foreign.map { |line| line[/\A[^:]+/] }, load
      end
      write(site, "index.html", %(#{Site::POLICY}"><a href="https://fine.example/"><script src="/a.js">))
      write(site, "assets/a.css", "a { background: url(data:image/svg+xml;utf8,http://www.w3.org) }")
      write(site, "assets/a.js", 'fetch("https://said.example/page")')

      assert_empty site.foreign
      write(site, "assets/a.js", 'fetch("https://count.example/visit")')
      write(site, "index.html", "<p>Nothing</p>")

      assert_equal ["assets/a.js: count.example", "index.html: no policy"], site.foreign.sort
    end
  end

  def test_a_link_of_a_built_page_that_leads_nowhere_is_found
    planted("# One\n", "# Two\n") do |site|
      FileUtils.mkdir_p(File.join(site.output, "docs"))
      write(site, "index.html", '<h1 id="one"><a href="#one"><a href="/docs/two.html#é"><a href="./"><img src="a.png">')
      write(site, "docs/two.html", '<a href="./../index.html#one" id="é"><a href="../README.html#one"><a href="/#two">')

      assert_equal ["docs/two.html: ../README.html#one", "docs/two.html: /#two", "index.html: a.png"], site.dead.sort
    end
  end

  def test_links_to_the_first_page_are_to_the_index
    planted("# One\n", "# Two\n\n[a](../README.md#one) [b](../README.md)\n") do |site|
      root = File.expand_path("../../..", site.output)
      FileUtils.cp_r(%w[config.mjs theme package.json].map { |name| File.join(ROOT, "site", name) }, "#{root}/site")
      site.lay_out
      text = File.read("#{root}/#{Site::BUILD}/source/docs/two.md")

      assert_includes text, "[a](../index.md#one) [b](../index.md)"
    end
  end

  private

  # A tree of two pages.
  def planted(first, second)
    Dir.mktmpdir do |root|
      %w[site docs].each { |name| Dir.mkdir(File.join(root, name)) }
      File.write(File.join(root, "site/navigation.yml"), <<~YAML)
        - section: All
          pages:
            - { file: README.md, title: One, about: the first }
            - { file: docs/two.md, title: Two, about: the second }
      YAML
      File.write(File.join(root, "README.md"), first)
      File.write(File.join(root, "docs/two.md"), second)
      yield Site.new(root: root)
    end
  end

  def write(site, path, text) = File.write(File.join(site.output, path), text)
end
