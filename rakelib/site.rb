# frozen_string_literal: true

require "fileutils"
require "json"
require "pathname"
require "uri"
require "yaml"

# The site of the documentation: the Markdown files that site/navigation.yml names, as they are in the tree, each also
# as a page, with llms.txt and the files that they link to. VitePress, which npm installs, makes the pages.
class Site
  ROOT = File.expand_path("..", __dir__)
  # Below the root; ignored by git.
  BUILD = "tmp/site"
  FENCED = /^( *)(`{3,}).*?^\1\2`*$/m
  # A link of Markdown or HTML, to a page, a part of one, or a picture.
  LINK = /\]\(<?([^)\s>]+)>?\)|(?:src|href)="([^"]+)"/
  ELSEWHERE = /\A[a-z][a-z0-9+.-]*:/i
  POLICY = %(<meta http-equiv="Content-Security-Policy" content="default-src 'self';)
  # What a browser asks another host for by itself, in a page or a style sheet.
  LOADS = Regexp.union(%r{<(?!a\b)\w+\b[^>]*\s(?:src|srcset|data|poster|href)="(?:https?:)?//[^"]*}i,
                       %r{(?:url\(|@import\s)\s*["']?(?:https?:)?//[^"')]*}i)
  HOST = %r{https?://([a-z0-9.-]+)}i
  # In a built page.
  REFERENCE = /<[a-z][^>]* (?:href|src)="([^"]*)"/
  IDENTIFIER = /<[a-z][^>]* id="([^"]*)"/
  # Hosts in texts and names of VitePress's own scripts. Only the last could be asked, for pictures of links to social
  # networks: there are none, and the policy forbids it.
  NAMED = %w[vuejs.org www.w3.org github.com a.com api.iconify.design].freeze

  Section = Struct.new(:title, :pages, :optional)
  Page = Struct.new(:file, :title, :about, :search, keyword_init: true) do
    # Without its suffix. The first page is the root of the site.
    def path = file == "README.md" ? "index" : file.delete_suffix(".md")
  end

  # @return [Array<String>] the ids that GitHub, and site/config.mjs, give to the headings of a text
  def self.anchors(text)
    seen = Hash.new(-1)
    text.gsub(FENCED, "").scan(/^\#{1,6} +(.+)$/).map do |(heading)|
      name = heading.gsub(/\[([^\]]*)\]\([^)]*\)/, '\1').strip.downcase.gsub(/[^[:alnum:]_\- ]/, "").tr(" ", "-")
      (seen[name] += 1).zero? ? name : "#{name}-#{seen[name]}"
    end
  end

  attr_reader :sections

  # @param url [String, nil] where the site will be, such as https://example.org/memscope, for links in llms.txt
  def initialize(root: ROOT, url: nil)
    @root = root
    @url = url && "#{url.delete_suffix('/')}/"
    @sections = YAML.safe_load_file(File.join(root, "site/navigation.yml"), symbolize_names: true).map do |section|
      pages = section.fetch(:pages).map { |page| Page.new(**page) }
      Section.new(section.fetch(:section), pages, section[:optional])
    end
  end

  def pages = sections.flat_map(&:pages)

  # @return [String] where the pages are once they are built
  def output = built("pages")

  # @return [Array<String>] "file: link" for each link of a page to a file, or a part of a page, that is not there
  def broken
    pages.flat_map do |page|
      lost = links(page.file).reject { |link| leads_somewhere?(*link) }
      lost.map { |link| "#{page.file}: #{link.compact.join('#')}" }
    end
  end

  # @return [Array<String>] files that pages link to, and that are not pages
  def linked = pages.flat_map { |page| links(page.file).map(&:first) }.uniq - pages.map(&:file)

  # @return [String] the index for language models, in the form of llmstxt.org
  def llms
    title, summary = read("README.md").split(/\n{2,}/)
    lists = sections.map do |section|
      entries = section.pages.map { |page| "- [#{page.title}](#{@url}#{page.path}.md): #{page.about}\n" }
      "## #{section.optional ? 'Optional' : section.title}\n\n#{entries.join.chomp}"
    end
    [title, "> #{summary.tr("\n", ' ')}", *lists].join("\n\n").concat("\n")
  end

  # Lays out the sources, as VitePress expects them, with its configuration.
  def lay_out
    FileUtils.rm_rf([built("source"), output])
    pages.each do |page|
      text = read(page.file).gsub(%r{\]\((?:\.\./)*\KREADME\.md(?=[#)])}, "index.md")
      write("source/#{page.file}", "#{"---\nsearch: false\n---\n\n" if page.search == false}#{text}")
    end
    linked.each { |file| place(file, "source/#{file}") }
    %w[config.mjs theme].each { |name| place("site/#{name}", "source/.vitepress/#{name}") }
    place("site/package.json", "package.json")
    write("source/.vitepress/site.json",
          JSON.generate(base: base, outDir: output, sidebar: sidebar, hostname: @url, descriptions: descriptions))
  end

  # Adds what VitePress does not make: the pages as Markdown, the files that they link to, llms.txt.
  def complete
    pages.each { |page| place(page.file, "pages/#{page.path}.md") }
    ["README.md", *linked].each { |file| place(file, "pages/#{file}") }
    write("pages/llms.txt", llms)
  end

  # @return [Array<String>] "file: what" for each thing in the built pages that may load from another host
  def foreign
    Dir[File.join(output, "**/*.{html,css,js}")].flat_map do |path|
      text = File.read(path, encoding: "UTF-8")
      found = path.end_with?(".js") ? text.scan(HOST).flatten.uniq - NAMED - hosts : text.scan(LOADS)
      found << "no policy" if path.end_with?(".html") && !text.include?(POLICY)
      found.map { |what| "#{path.delete_prefix("#{output}/")}: #{what}" }
    end
  end

  # @return [Array<String>] "file: link" for each link of a built page to a file, or a part of a page, that is not there
  def dead
    identifiers = Hash.new { |known, path| known[path] = File.read(path, encoding: "UTF-8").scan(IDENTIFIER).flatten }
    Dir[File.join(output, "**/*.html")].flat_map do |path|
      lost = File.read(path, encoding: "UTF-8").scan(REFERENCE).flatten.uniq.grep_v(ELSEWHERE).reject do |link|
        file, part = URI.decode_www_form_component(link).split("#", 2)
        target = target(path, file)
        File.file?(target) && (part.to_s.empty? || identifiers[target].include?(part))
      end
      lost.map { |link| "#{path.delete_prefix("#{output}/")}: #{link}" }
    end
  end

  private

  # The built file that a link of another leads to.
  def target(path, link)
    return path if link.to_s.empty?

    found = File.expand_path(link.delete_prefix(base), link.start_with?(base) ? output : File.dirname(path))
    File.directory?(found) ? File.join(found, "index.html") : found
  end

  def base = URI(@url || "/").path

  # What a search engine shows of each page.
  def descriptions = pages.to_h { |page| [page.file, page.about.sub(/./, &:upcase)] }

  def read(file) = File.read(File.join(@root, file), encoding: "UTF-8")

  def built(path) = File.join(@root, BUILD, path)

  def place(file, to)
    FileUtils.mkdir_p(File.dirname(built(to)))
    FileUtils.cp_r(File.join(@root, file), built(to))
  end

  def write(path, text)
    FileUtils.mkdir_p(File.dirname(built(path)))
    File.write(built(path), text)
  end

  def sidebar
    sections.map do |section|
      { text: section.title, items: section.pages.map { |page| { text: page.title, link: "/#{page.path}" } } }
    end
  end

  # @return [Array<Array(String, String)>] the files of the tree that a page links to, and the part of each, or nil
  def links(file)
    prose = read(file).gsub(FENCED, "").gsub(/`[^`\n]*`/, "`")
    prose.scan(LINK).flatten.compact.grep_v(ELSEWHERE).map do |link|
      path, part = link.split("#", 2)
      [path.empty? ? file : Pathname(file).dirname.join(path).cleanpath.to_s, part]
    end
  end

  def leads_somewhere?(file, part)
    File.exist?(File.join(@root, file)) && (part.nil? || Site.anchors(read(file)).include?(part))
  end

  # Hosts of links in the pages' texts.
  def hosts = @hosts ||= pages.flat_map { |page| read(page.file).scan(HOST) }.flatten.uniq
end
