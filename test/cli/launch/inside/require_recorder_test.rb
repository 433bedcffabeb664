# frozen_string_literal: true

require_relative "../../../test_helper"
require_relative "../../../support/recorded_programs"

# A program behaves the same whether or not the files that it loads are recorded.
class RequireRecorderTest < MemscopeTest
  include RecordedPrograms

  parallelize_me!

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
end
