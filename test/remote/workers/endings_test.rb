# frozen_string_literal: true

require_relative "../../test_helper"
require "etc"
require "memscope/remote/workers/endings"
require "minitest/mock"
require "tmpdir"

class EndingsTest < MemscopeTest
  Boxes = Memscope::Boxes

  def setup
    super
    skip "no kernel before Linux 6.15 tells" if (kernel <=> [6, 15]).negative?
    @endings = Memscope::Workers::Endings.new
    @pid = spawn("sleep 100", unsetenv_others: true)
    @name = Boxes.file_name(@pid, Memscope::ProcessIdentity.of(@pid).started)
  end

  def kernel = Etc.uname[:release].split(".").first(2).map(&:to_i)

  def end_by(signal)
    Process.kill(signal, @pid)
    Process.wait(@pid)
  end

  # Between its end and its parent's wait, nothing is known.
  def test_the_status_that_another_reaps
    Dir.mktmpdir do |directory|
      File.write("#{directory}/#{@name}", "")
      Boxes.stub(:directories, [directory]) do
        @endings.hold(@pid)
        @endings.note

        assert_equal [@name], Dir.children(directory)
        end_by(:TERM)
        2.times { @endings.note }
      end

      assert_equal "15", File.read("#{directory}/#{@name}.ended")
    end
  end

  # One that exits deletes its box.
  def test_a_process_without_a_box
    Dir.mktmpdir do |directory|
      Boxes.stub(:directories, [directory]) do
        @endings.hold(@pid)
        end_by(:KILL)
        @endings.note
        @endings.hold(@pid)
      end

      assert_empty Dir.children(directory)
    end
  end
end
