# frozen_string_literal: true

require "net/http"

# A real server in a process group of its own, which listens on a free port of 127.0.0.1. Subclasses define the
# application.
class PumaProcess
  # The longest wait for anything here, in seconds, on a loaded machine.
  PATIENCE = 90

  # Starts a server, yields it and stops it. A failure in the block shows the server's log.
  def self.run(...)
    server = new(...)
    yield server
  rescue Minitest::Skip
    raise
  rescue Minitest::Assertion, StandardError => e
    raise e.class, "#{e.message}\n--- the server's log\n#{server&.log}", e.backtrace
  ensure
    server&.stop
  end

  # @return [Integer] pid of the master, or of the only process
  attr_reader :pid
  # @return [Integer] the port on 127.0.0.1
  attr_reader :port

  # Starts it, and waits until it listens.
  #
  # @param command [Array<String>]
  # @param environment [Hash{String => String, nil}]
  # @param directory [String] its working directory, where log.txt has its output
  def initialize(command, environment, directory)
    raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE

    @log = File.join(directory, "log.txt")
    @pid = Process.spawn(environment, *command, chdir: directory, in: File::NULL, %i[out err] => @log, pgroup: true)
    @waiter = Process.detach(@pid)
    @port = until_found("port") { log[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1]&.to_i }
  end

  # The command of a Ruby with memscope and the bundle's gems that runs one of their programs.
  def self.command(program, *arguments)
    load_path = ChildProcess::LOAD_PATH.map { |directory| "-I#{directory}" }
    [RbConfig.ruby, "-W0", *load_path, Gem.bin_path(program, program), *arguments]
  end

  # @param env [Hash{String => String, nil}]
  # @param preload [String, nil] an allocator
  # @return [Hash{String => String, nil}] the environment of a process that finds the bundle's gems
  def self.environment(preload, env)
    ChildProcess.environment(preload, { **ChildProcess::BUNDLE, **env })
  end

  # @return [String] the server's output and log
  def log = File.read(@log)

  # @return [Net::HTTPResponse]
  def request(request)
    Net::HTTP.start("127.0.0.1", port, open_timeout: PATIENCE, read_timeout: PATIENCE) { |http| http.request(request) }
  end

  # Seconds between polls: many polls are requests, which cost the server CPU time.
  PAUSE = 0.2
  private_constant :PAUSE

  # @return [Object] the first true value of the block
  def until_found(what)
    deadline = now + PATIENCE
    until (found = yield)
      raise ChildProcess::Failure, "no #{what}: #{log}" if now > deadline || !@waiter.alive?

      sleep PAUSE
    end
    found
  end

  # Workers that a test has stopped must continue first.
  def stop
    Process.kill(:CONT, -pid)
    Process.kill(:TERM, pid)
    return if @waiter.join(PATIENCE)

    Process.kill(:KILL, -pid)
    @waiter.join
  rescue Errno::ESRCH
    nil
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
