# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/recorded_programs"

# What a program sees of the methods that are replaced, and others that replace them too.
class RequireHooksTest < MemscopeTest
  include RecordedPrograms

  parallelize_me!

  def test_what_a_program_sees
    assert_alike(<<~'RUBY')
      require "plain"
      p PLAIN.map { |line| line[/[^\/]*\z/].sub(/'.*#/, "'") }
      p method(:require).owner, method(:require).arity, Kernel.private_method_defined?(:require_relative)
      load "wrapped.rb", true
      p $wrapped, defined?(WRAPPED)
      p require("circle"), CIRCLE
    RUBY
  end

  # As Bundler.setup does, when it ends the activation of gems.
  BUNDLER = <<~RUBY
    [Kernel.singleton_class, Kernel].each do |owner|
      original = owner.instance_method(:gem_original_require)
      owner.class_eval { define_method(:require, original) }
    end
    Kernel.send(:private, :require)
  RUBY

  REQUIRES = 'p require("plain"), Kernel.require("late"), require("late"), require_relative("nested")'

  def test_bundler_puts_rubys_own_require_back
    found = assert_alike("#{BUNDLER}#{REQUIRES}")

    assert_equal(%w[plain.rb late.rb nested.rb], files(found).map { |node| File.basename(node.path) })
  end

  # bundle exec sets up Bundler before anything else, in the program that it execs.
  def test_bundler_has_put_rubys_own_require_back
    make("bundler.rb", BUNDLER)
    found = assert_alike(<<~RUBY)
      options = "-rbundler \#{ENV['RUBYOPT']}"
      ENV["AGAIN"] or exec({ "AGAIN" => "1", "RUBYOPT" => options }, "#{RbConfig.ruby}", "-I", __dir__, __FILE__)
      #{REQUIRES}
    RUBY

    assert_equal(%w[plain.rb late.rb nested.rb], files(found).map { |node| File.basename(node.path) })
  end

  # As Bundler.setup does since Ruby 3.3, to warn of gems that a bundle lacks.
  BUNDLED_GEMS = <<~RUBY
    [Kernel.singleton_class, Kernel].each do |owner|
      owner.send(:alias_method, :no_warning_require, :require)
      owner.send(:define_method, :require) { |name| owner.send(:no_warning_require, name) }
    end
    Kernel.send(:private, :require)
  RUBY

  def test_bundler_watches_require
    make("bundler.rb", BUNDLER + BUNDLED_GEMS)
    ["require %q(bundler)", <<~RUBY].each do |start|
      options = "-rbundler \#{ENV['RUBYOPT']}"
      ENV["AGAIN"] or exec({ "AGAIN" => "1", "RUBYOPT" => options }, "#{RbConfig.ruby}", "-I", __dir__, __FILE__)
    RUBY
      found = assert_alike("#{start}\n#{REQUIRES}")

      names = files(found).map { |node| File.basename(node.path) }

      assert_equal %w[plain.rb late.rb nested.rb], names - %w[bundler.rb]
    end
  end

  # RubyGems, Bootsnap and Zeitwerk alias require, in a program that is recorded too.
  def test_others_alias_require_too
    found = assert_alike(<<~RUBY)
      module Kernel
        alias others_require require
        def require(feature) = others_require(feature.sub("planned", "plain"))
        private :require
      end
      p require("planned"), require("planned")
    RUBY

    assert_equal(%w[plain.rb], files(found).map { |node| File.basename(node.path) })
  end
end
