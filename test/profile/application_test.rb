# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/profile/profile"
require "fileutils"
require "tmpdir"

# Which files are the application's, in directories as Bundler, Capistrano and RubyGems lay them out.
class ProfileApplicationTest < MemscopeTest
  APPLICATION = Memscope::Profile.const_get(:Application)
  LIBRARIES = Memscope::Profile.const_get(:Libraries)
  GEM = Struct.new(:name, :version, :full_gem_path, :source)
  SOURCES = %w[Path Gemspec Git Rubygems].to_h do |kind|
    [kind, Class.new { define_singleton_method(:name) { "Bundler::Source::#{kind}" } }.new]
  end

  def setup
    super
    @top = File.realpath(Dir.mktmpdir("memscope"))
    @shop = make("releases/1")
    @bundle = "vendor/bundle/ruby/3.1.0"
    File.symlink(@shop, link)
  end

  def teardown
    FileUtils.remove_entry(@top)
    super
  end

  def make(directory) = File.join(@top, directory).tap { |path| FileUtils.mkdir_p(path) }

  def link = File.join(@top, "current")

  def gem(name, directory, source: "Path") = GEM.new(name, "0.3", directory, SOURCES.fetch(source))

  def library(path, root: @shop, **given)
    LIBRARIES.of_line(path, APPLICATION.new(root: root, source: :bundler, **given))
  end

  def test_files_of_the_application
    ["#{@shop}/app/report.rb", "#{@shop}/bin/rails", "#{@shop}/gems/billing/lib/billing.rb", "-e", "(irb)",
     "#{@top}/elsewhere.rb"].each { |path| assert_equal "application", library(path), path }
  end

  # The gem's path is below the root, and by its name looks like an installed gem's.
  def test_a_gem_that_is_developed_in_the_application
    billing = gem("billing", make("releases/1/gems/billing-2"))
    file = "#{@shop}/gems/billing-2/lib/billing.rb"

    assert_equal "application", library(file, gems: [billing])
    assert_equal "billing 2", library(file)
    assert_equal "nokogiri 1.15.4",
                 library("#{@shop}/gems/billing-2/#{@bundle}/gems/nokogiri-1.15.4/x.rb", gems: [billing])
  end

  def test_a_gem_whose_tests_run
    own = gem("shop", @shop, source: "Gemspec")

    assert_equal "application", library("#{@shop}/lib/shop.rb", gems: [own])
    assert_equal "nokogiri 1.15.4", library("#{@shop}/#{@bundle}/gems/nokogiri-1.15.4-x86_64-linux/x.rb", gems: [own])
  end

  def test_a_gem_outside_the_application_with_a_path
    common = gem("common", make("common"))
    around = gem("around", @top)

    assert_equal "common 0.3", library("#{@top}/common/lib/common.rb", gems: [common, around])
    assert_equal "around 0.3", library("#{@top}/lib/around.rb", gems: [common, around])
    assert_equal "application", library("#{@shop}/app/report.rb", gems: [common, around])
  end

  def test_gems_that_lie_below_the_root
    copies = [gem("local", make("releases/1/vendor/bundle/local")),
              gem("cached", make("releases/1/vendor/cache/cached")),
              gem("forked", make("releases/1/vendor/cache/forked-1c2d3e4f5a6b"), source: "Git"),
              gem("cloned", make("releases/1/.gems/bundler/gems/cloned-1c2d3e4f5a6b"), source: "Git")]

    { "#{@bundle}/gems/nokogiri-1.15.4/lib/x.rb" => "nokogiri 1.15.4",
      "#{@bundle}/bundler/gems/rails-0123456789ab/activerecord/base.rb" => "rails 0123456789ab",
      "vendor/bundle/local/x.rb" => "local 0.3", "vendor/cache/cached/x.rb" => "cached 0.3",
      "vendor/cache/forked-1c2d3e4f5a6b/x.rb" => "forked 0.3",
      ".gems/bundler/gems/cloned-1c2d3e4f5a6b/x.rb" => "cloned 1c2d3e4f5a6b" }.each do |path, name|
      assert_equal name, library("#{@shop}/#{path}", gems: copies), path
    end
  end

  def test_a_root_that_is_named_like_a_gem
    shop = make("gems/shop-2.0")

    assert_equal "shop 2.0", library("#{shop}/lib/shop.rb")
    assert_equal "application", library("#{shop}/lib/shop.rb", root: shop)
    assert_equal "nokogiri 1.15.4", library("#{shop}/#{@bundle}/gems/nokogiri-1.15.4/x.rb", root: shop)
  end

  # A container's working directory can be the root of the file system.
  def test_ruby_below_the_root
    ruby = %w[rubylibdir rubyarchdir vendordir sitedir].filter_map { |name| RbConfig::CONFIG[name] }

    ruby.each { |path| assert_equal "Ruby standard library", library("#{path}/set.rb", root: "/"), path }
    assert_equal "Ruby standard library", library("<internal:kernel>", root: "/")
    assert_equal "nokogiri 1.15.4", library("/usr/lib/ruby/gems/3.1.0/gems/nokogiri-1.15.4/x.rb", root: "/")
    assert_equal "application", library("/app/report.rb", root: "/")
    assert_equal "/", APPLICATION.new(root: "/").root
  end

  # Ruby reports most files without symbolic links, but those that __FILE__ names with them.
  def test_a_root_that_is_a_link
    billing = gem("billing", File.join(link, "gems/billing-2"))
    make("releases/1/gems/billing-2")

    assert_equal @shop, APPLICATION.new(root: link).root
    [@shop, link].each do |root|
      assert_equal "application", library("#{root}/gems/billing-2/lib/billing.rb", root: link, gems: [billing])
      assert_equal "nokogiri 1.15.4", library("#{root}/#{@bundle}/gems/nokogiri-1.15.4/x.rb", root: link)
    end
  end

  # A process of the last release, after the next one has been deployed.
  def test_a_link_that_leads_elsewhere_by_now
    File.unlink(link)
    File.symlink(make("releases/2"), link)
    billing = gem("billing", File.join(link, "engines/billing"))

    assert_equal "application", library("#{@shop}/app/report.rb", root: link, gems: [billing])
    assert_equal "application", library("#{@shop}/engines/billing/x.rb", root: link, gems: [billing])
    assert_equal "nokogiri 1.15.4", library("#{@shop}/#{@bundle}/gems/nokogiri-1.15.4/x.rb", root: link)
  end

  def test_code_that_is_evaluated
    nokogiri = "#{@shop}/#{@bundle}/gems/nokogiri-1.15.4/x.rb"
    set = "#{RbConfig::CONFIG['rubylibdir']}/set.rb"

    { "#{@shop}/app/report.rb" => "application", nokogiri => "nokogiri 1.15.4", set => "Ruby standard library",
      "<internal:kernel>" => "Ruby standard library", "(eval at #{set}:1)" => "Ruby standard library" }
      .each { |path, name| assert_equal name, library("(eval at #{path}:12)"), path }
    assert_equal "application", library("(eval at\n"), "what only looks like it"
  end

  def test_scripts_that_start_the_programs_of_gems
    rake = gem("rake", make("rake"), source: "Rubygems")
    FileUtils.touch(File.join(make("rake/exe"), "rake"))
    bin = make("releases/1/#{@bundle}/bin")
    suffix = RbConfig::CONFIG["ruby_install_name"].delete_prefix("ruby")
    judged = ->(path) { library(path, gems: [rake], scripts: [bin]) }

    assert_equal "rake 0.3", judged["#{bin}/rake"]
    assert_equal "rake 0.3", judged["#{bin}/rake#{suffix}"]
    assert_equal "application", judged["#{bin}/import"]
    assert_equal "application", judged["#{@shop}/bin/rake"]
    assert_equal "application", judged["#{bin}/r\0ake"]
  end

  # Prints root and source of a process that starts in @top, without Bundler.
  ROOT = <<~RUBY
    application = Memscope::Profile.const_get(:Application).current
    reading = (Memscope::MallocProfile.start(backend: :imports) || Memscope::MallocProfile.stop) if %s
    puts JSON.generate([application.root, application.source, reading&.reasons])
  RUBY

  def root(script = "", profiled: false)
    child_json("Dir.chdir(#{@top.inspect}); #{script}\n#{format(ROOT, profiled)}", requires: %w[json memscope])
  end

  def test_a_root_without_bundler
    assert_equal [@top, "directory", nil], root
    assert_equal [@shop, "rails", nil], root("module Rails; def self.root = #{link.inspect}; end")
    assert_equal [@top, "directory", nil], root("module Rails; def self.root = raise('not yet'); end")
    assert_equal [@top, "directory", nil], root("module Bundler; def self.default_gemfile = raise('none'); end")
  end

  def test_a_directory_that_is_gone
    path, source, reasons = root("Dir.mkdir('gone'); Dir.chdir('gone'); Dir.rmdir('../gone')", profiled: true)

    assert_equal [nil, nil, "the working directory does not exist any more"],
                 [path, source, reasons["application_root"]]
  end
end
