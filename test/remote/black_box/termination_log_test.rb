# frozen_string_literal: true

require_relative "../../test_helper"
require "tempfile"

class TerminationLogTest < MemscopeTest
  def setup
    super
    @file = Tempfile.new("termination")
    @log = Memscope::BlackBox::TerminationLog.new(@file.path)
  end

  def text = File.read(@file.path)

  def test_its_own_text_is_replaced_and_emptied
    @log.write("a longer text")
    @log.write("later")

    assert_equal "later", text
    @log.clear

    assert_empty text
    @log.write("x" * 5000)

    assert_equal 4096, text.bytesize
  end

  def test_a_text_of_others_stays
    @log.clear
    File.write(@file.path, "why I ended")
    @log.write("memory")
    @log.clear

    assert_equal "why I ended", text
    File.write(@file.path, "")
    @log.write("memory")
    File.write(@file.path, "memory, and more of others")
    @log.clear

    assert_equal "memory, and more of others", text
  end

  def test_a_character_is_not_cut
    @log.write("é" * 3000)

    assert_predicate text, :valid_encoding?
    assert_equal 2048, text.size
  end

  def test_other_files_are_left_alone
    fifo = "#{@file.path}.fifo"
    File.mkfifo(fifo)
    [fifo, "/nonexistent/log", "/dev/null", File.dirname(@file.path)].each do |path|
      log = Memscope::BlackBox::TerminationLog.new(path)
      log.write("memory")

      assert_nil log.clear
    end
  ensure
    File.unlink(fifo)
  end
end
