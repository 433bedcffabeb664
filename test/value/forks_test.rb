# frozen_string_literal: true

require_relative "../test_helper"

class ForksTest < MemscopeTest
  LISTENING = <<~'RUBY'
    require "memscope/value/forks"
    $reader, $writer = IO.pipe
    %w[first second].each do |name|
      tell = ->(event) { -> { $writer.write("#{name} #{event}\n") } }
      Memscope::Forks.listen(child: tell.call(:child), parent: tell.call(:parent), daemon: tell.call(:daemon))
    end
    Memscope::Forks.listen(child: -> { $writer.write("child only\n") })
  RUBY

  def test_calls_in_the_child_and_in_the_parent_in_order
    lines = child_json(<<~RUBY, requires: ["json"])
      #{LISTENING}
      Process.wait(fork { exit! })
      $writer.close
      puts JSON.generate($reader.readlines(chomp: true))
    RUBY

    assert_equal ["first child", "second child", "child only"], lines.grep(/child/)
    assert_equal ["first parent", "second parent"], lines.grep(/parent/)
  end

  def test_a_child_of_a_child
    lines = child_json(<<~RUBY, requires: ["json"])
      #{LISTENING}
      Process.wait(fork { Process.wait(fork { exit! }); exit! })
      $writer.close
      puts JSON.generate($reader.readlines(chomp: true))
    RUBY

    assert_equal 2, lines.count("first child")
  end

  def test_calls_in_what_daemon_continues_in
    lines = child_json(<<~RUBY, requires: ["json"])
      require "memscope/value/forks"
      reader, writer = IO.pipe
      Memscope::Forks.listen(child: -> { writer.puts("child") }, daemon: -> { writer.puts("daemon") })
      fork do
        Process.daemon(true, true)
        exit!
      end
      writer.close
      puts JSON.generate(reader.readlines(chomp: true))
    RUBY

    assert_equal %w[child daemon], lines
  end
end
