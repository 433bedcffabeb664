# frozen_string_literal: true

require "memscope/cli/cli"
require "stringio"

# The command memscope, run in this process.
module CommandLine
  Ran = Struct.new(:status, :out, :err)

  # Runs the command in this process.
  def run_memscope(*arguments)
    out = StringIO.new
    err = StringIO.new
    Ran.new(Memscope::CLI.run(arguments, out: out, err: err), out.string, err.string)
  end

  # What a command that ends well prints.
  def printed_by(*arguments)
    ran = run_memscope(*arguments)

    assert_equal 0, ran.status, ran.err
    ran.out
  end

  # The exit status of a command that prints nothing, and its last word.
  def refused(*arguments)
    ran = run_memscope(*arguments)

    assert_empty ran.out
    [ran.status, ran.err.lines.last.chomp]
  end

  # The command line that runs it in a process of its own.
  def command(name) = [*ChildProcess.ruby, File.join(ChildProcess::ROOT, "exe", "memscope"), name]

  def assert_refused(message, *arguments)
    ran = run_memscope(*arguments)

    assert_equal [64, ""], [ran.status, ran.out]
    assert_equal "#{message}\n", ran.err
  end
end
