# frozen_string_literal: true

require_relative "child_process"

# Programs that have not loaded memscope, in processes of their own.
module Bystander
  private

  # Runs a program for the time of the block.
  #
  # @param ready [Boolean] waits until the program has printed a line
  # @yieldparam pid [Integer]
  # @yieldparam output [IO] what it prints after that
  def running(*command, env: {}, ready: true)
    reader, writer = IO.pipe
    options = command.last.is_a?(Hash) ? command.pop : {}
    pid = spawn(ChildProcess.environment(nil, env), *command, out: writer, **options)
    writer.close
    reader.gets if ready
    yield pid, reader
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
    reader.close
  end
end
