# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/launching"

# A program behaves the same whether or not the files that it loads are recorded.
class RequireRecorderTest < MemscopeTest
  include Launching

  parallelize_me!

  FILES = {
    "plain.rb" => "PLAIN = caller.reject { |line| line.include?('<internal:') }",
    "nested.rb" => "require_relative 'plain'; require 'plain'; NESTED = __dir__",
    "raises.rb" => "require 'plain'; raise ArgumentError, 'no'",
    "lacking.rb" => "require 'nowhere/at/all'",
    "circle.rb" => "CIRCLE = require 'circle'",
    "wrong.rb" => "def (",
    "wrapped.rb" => "WRAPPED = 1; $wrapped = Module.nesting.size",
    "late.rb" => "module Late; HERE = 1; end",
    "exits.rb" => "exit 5",
    "deep/inner.rb" => "DEEP = require_relative('../plain')"
  }.freeze

  def setup
    super
    FILES.each do |name, text|
      FileUtils.mkdir_p(File.dirname(path(name)))
      File.write(path(name), text)
    end
  end

  def programs(script) = [RbConfig.ruby, "-I#{directory}", make("main.rb", script)]

  # Runs a program as it is and recorded; both must print the same and end alike.
  def assert_alike(script, status: 0)
    alone = ChildProcess.run_command(*programs(script))
    recorded = launch("requires", "--json", "--", *programs(script))

    assert_equal status, alone.status.exitstatus, alone.to_s
    assert_equal [alone.out, status], [recorded.out, recorded.status.exitstatus], recorded.to_s
    recorded.err.empty? || status.positive? ? nil : Memscope::Requires.from_json(recorded.err.lines.last)
  end

  def files(reading) = reading.nodes.drop(1).select { |node| node.path.start_with?(directory) }

  def test_returned_values_and_nesting
    found = assert_alike(<<~RUBY)
      p require("nested"), require("nested"), require_relative("plain"), load("plain.rb"), Kernel.require("late")
      p Kernel.load("late.rb"), NESTED == __dir__, require(Struct.new(:to_path).new(File.join(__dir__, "deep/inner"))), DEEP
    RUBY
    nodes = files(found)

    assert_equal(%w[nested.rb plain.rb plain.rb late.rb late.rb inner.rb],
                 nodes.map { |node| File.basename(node.path) })
    assert_equal [0, nodes[0].id, 0, 0, 0, 0], nodes.map(&:parent)
  end

  def test_errors
    assert_alike(<<~'RUBY')
      ["raises", "lacking", "nowhere", "wrong", "", nil, 1, "pl\0ain"].each do |feature|
        begin
          p require(feature)
        rescue ScriptError, StandardError => e
          lines = e.backtrace_locations.to_a.map(&:path).grep(/\.rb\z/)
          p [e.class, e.message[/.*/], (e.path if e.is_a?(LoadError)), lines]
        end
      end
      begin
        eval("require_relative 'plain'")
      rescue LoadError => e
        p e.message
      end
      begin
        require
      rescue ArgumentError => e
        p e.class
      end
      begin
        load "nowhere.rb"
      rescue LoadError => e
        p e.message
      end
      p eval("require_relative 'plain'", binding, __FILE__, 1)
    RUBY
  end

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

  def test_autoload_and_threads
    found = assert_alike(<<~RUBY)
      autoload :Late, "late"
      module Some; autoload :PLAIN, "plain"; end
      p Object.autoload?(:Late), Late::HERE, Object.autoload?(:Late)
      p((Some::PLAIN rescue $!.class))
      p 4.times.map { Thread.new { require "nested" } }.map(&:value).count(true)
    RUBY
    lazy = files(found).select(&:lazy?).map { |node| File.basename(node.path) }

    assert_equal %w[plain.rb], lazy # Kernel#autoload is left alone: its receiver is the caller's
    assert_equal(1, files(found).count { |node| node.path.end_with?("nested.rb") })
  end

  # The path is asked for when the file has its number already.
  def test_two_threads_that_begin_to_load_at_once
    found = assert_alike(<<~RUBY)
      asked = Queue.new
      slow = Struct.new(:path) { define_method(:to_path) { asked << true; sleep 0.3; path } }
      thread = Thread.new { Kernel.require(slow.new(File.join(__dir__, "late.rb"))) }
      asked.pop
      p require("plain"), thread.value
    RUBY

    assert_equal(%w[late.rb plain.rb], files(found).map { |node| File.basename(node.path) }.sort)
    assert(files(found).all? { |node| node.objects.positive? })
  end

  def test_a_file_that_ends_the_program
    assert_alike("require 'exits'", status: 5)
  end

  def test_a_failed_require_belongs_to_the_file_that_made_it
    found = assert_alike("2.times { begin; require 'lacking'; rescue LoadError; end }")

    assert_empty files(found)
  end

  def test_a_file_that_raised_is_kept
    found = assert_alike("begin; require 'raises'; rescue ArgumentError; end")

    assert_equal(%w[raises plain.rb], found.nodes.last(2).map { |node| File.basename(node.path) })
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
