# frozen_string_literal: true

require "cgi"
require_relative "../test_helper"
require_relative "../support/browser"
require_relative "../support/puma_process"
require_relative "../../rakelib/site"

# The site as `rake site` builds it, in a browser. .github/workflows/pages.yml runs this before it publishes.
class BuiltSiteTest < MemscopeTest
  URL = "https://site.example/"
  SIZES = { phone: { width: 390, height: 844 }, desk: { width: 1280, height: 900 } }.freeze
  SERVER = "run Rack::Files.new(ENV.fetch(\"SITE\"))\n"
  # Evaluated in a page: the elements that are wider than the window, and not in one that scrolls.
  WIDE = <<~JS
    [...document.querySelectorAll(".vp-doc *")].filter((one) => {
      for (let box = one.parentElement; box; box = box.parentElement)
        if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX) ||
            getComputedStyle(one).overflowX === "auto") return false;
      return one.getBoundingClientRect().right > innerWidth + 1;
    }).map((one) => one.outerHTML.slice(0, 80))
  JS

  class << self
    # Builds once.
    def site
      @site ||= Site.new(url: URL).tap do
        raise Minitest::Skip, "no npm, which builds the site" unless system("npm", "--version", out: File::NULL)

        ran = ChildProcess.run_command("bundle", "exec", "rake", "site", chdir: ChildProcess::ROOT, timeout: 600,
                                                                         env: { "SITE_URL" => URL })
        raise Minitest::Assertion, ran.to_s unless ran.success?
      end
    end
  end

  only_in_full :test_no_page_asks_another_host_or_is_wider_than_the_window, :test_the_search_finds_a_page,
               :test_each_page_is_there_as_markdown, :test_each_page_can_be_found, :test_a_page_leads_to_its_markdown

  def setup
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    super
  end

  def test_each_page_is_there_as_markdown
    site = self.class.site
    site.pages.each do |page|
      assert_equal File.read(File.join(ChildProcess::ROOT, page.file)), built("#{page.path}.md")
      assert_includes built("#{page.path}.html"), Site::POLICY
      assert_includes built("#{page.path}.html"), %(href="/#{page.file}" target="_self")
    end
    assert_equal site.llms, built("llms.txt")
    assert_empty site.foreign
    assert_empty site.dead
  end

  def test_each_page_can_be_found
    pages = self.class.site.pages
    heads = pages.map { |page| built("#{page.path}.html")[%r{<head>.*</head>}m] }
    titles = heads.map { |head| head[%r{<title>(.*)</title>}, 1] }

    assert_equal titles.uniq, titles
    assert_equal "memscope for Ruby: why the memory of a process grows", titles.first
    assert_equal(pages.map { |page| page.about.downcase },
                 heads.map { |head| CGI.unescapeHTML(head[/<meta name="description" content="([^"]*)"/, 1]).downcase })
    assert_equal pages.map { |page| "#{URL}#{page.path}.html".delete_suffix("index.html") }.sort,
                 built("sitemap.xml").scan(%r{<loc>(.*?)</loc>}).flatten.sort
  end

  def test_no_page_asks_another_host_or_is_wider_than_the_window
    served do |root|
      SIZES.each_value do |size|
        Browser.page(**size) do |page|
          self.class.site.pages.each { |one| visit(page, "#{root}/#{one.path}.html") }

          assert_empty(page.urls.compact.reject { |url| url.start_with?("#{root}/", "data:") })
          assert_empty page.complaints
        end
      end
    end
  end

  def test_a_page_leads_to_its_markdown
    served do |root|
      Browser.page do |page|
        page.go_to("#{root}/docs/tags.html")
        page.click(".as-markdown")

        assert_operator page.evaluate("document.body.innerText"), :start_with?, "# "
      end
    end
  end

  def test_the_search_finds_a_page
    served do |root|
      Browser.page do |page|
        page.go_to("#{root}/index.html")
        page.until_found("button") { page.text(".DocSearch-Button") }
        page.push(".DocSearch-Button")
        page.until_found("field") { page.evaluate("document.activeElement.tagName") == "INPUT" }
        page.press("postmortem")

        page.until_found("result") { page.text(".results")&.include?("The black box") }
      end
    end
  end

  private

  def built(path) = File.read(File.join(self.class.site.output, path), encoding: "UTF-8")

  def visit(page, url)
    page.go_to(url)
    page.until_found("page at #{url}") { page.evaluate("document.readyState") == "complete" }

    assert_empty page.evaluate(WIDE), url
    assert_operator page.evaluate("document.documentElement.scrollWidth - innerWidth"), :<=, 0, url
  end

  def served
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "config.ru"), SERVER)
      environment = PumaProcess.environment(nil, { "SITE" => self.class.site.output })
      PumaProcess.run(PumaProcess.command("puma", "-b", "tcp://127.0.0.1:0"), environment, directory) do |server|
        yield "http://127.0.0.1:#{server.port}"
      end
    end
  end
end
