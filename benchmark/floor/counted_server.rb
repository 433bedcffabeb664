# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "servers"

# A server under callgrind.
class CountedServer < Server
  def initialize(program, env)
    @directory = Dir.mktmpdir
    super(program, env, "valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no",
          "--callgrind-out-file=#{File.join(@directory, 'counts')}")
  end

  # @return [Integer] the instructions of a batch: each dump resets the counts
  def count(...)
    control("--instr=on")
    ask(...)
    control("--instr=off")
    control("--dump")
    last = Dir[File.join(@directory, "counts.*")].max_by { |path| Integer(File.extname(path).delete(".")) }
    Integer(File.foreach(last).grep(/^totals:/).last.split.last)
  end

  def stop = super.tap { FileUtils.remove_entry(@directory) }

  private

  def control(how) = system("callgrind_control", how, pid.to_s, %i[out err] => File::NULL, exception: true)
end

def valgrind? = system("valgrind", "--version", out: File::NULL, err: File::NULL)

# Instructions per round; a server runs two rounds for each that is requested. What happens once in a process, such as
# booting and whatever the first start of a profile loads, is not counted.
def instructions(program, side, count:)
  server = CountedServer.new(program, side.env)
  server.ask(count, side.how)
  server.count(count, side.how).fdiv(2 * count).tap { server.stop }
end
