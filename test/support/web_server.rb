# frozen_string_literal: true

require "net/http"
require "socket"
require "tempfile"

# workloads/web.ru, served by a real Puma or rackup in a process of its own.
class WebServer
  # Seconds in which it starts and stops, on a loaded machine.
  PATIENCE = 60
  COMMANDS = { "puma" => %w[-b tcp://127.0.0.1:0 -t 1:16], "rackup" => %w[-s puma -o 127.0.0.1 -p 0] }.freeze

  # @return [Integer]
  attr_reader :pid
  # @return [Integer]
  attr_reader :port

  def self.run(program = "puma", env: {}, preload: nil)
    server = new(program, env, preload)
    yield server
  ensure
    server&.stop
  end

  def initialize(program, env, preload)
    raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE

    @log = Tempfile.new("log")
    @pid = start(program, env, preload)
    @waiter = Process.detach(@pid)
    @port = Integer(until_found("a port") { log[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1] })
  end

  def log = File.read(@log.path)

  def rss_bytes = File.read("/proc/#{pid}/statm").split[1].to_i * 4096

  # @return [Net::HTTPResponse]
  def get(path, headers = {})
    Net::HTTP.start("127.0.0.1", port, read_timeout: PATIENCE) { |http| http.get(path, headers) }
  end

  # @param text [String] a request as it goes over the wire
  # @return [String] what comes back
  def raw(text)
    TCPSocket.open("127.0.0.1", port) do |socket|
      socket.write(text)
      socket.read
    end
  rescue Errno::ECONNRESET, Errno::EPIPE
    ""
  end

  def until_found(what)
    deadline = now + PATIENCE
    until (found = yield)
      raise ChildProcess::Failure, "no #{what}: #{log}" if now > deadline || !@waiter.alive?

      sleep 0.02
    end
    found
  end

  def stop
    Process.kill(:TERM, @pid)
    Process.kill(:KILL, -@pid) unless @waiter.join(PATIENCE)
  rescue Errno::ESRCH
    nil
  ensure
    @log.close!
  end

  private

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def start(program, env, preload)
    environment = ChildProcess.environment(
      preload, { "BUNDLE_GEMFILE" => File.join(ChildProcess::ROOT, "Gemfile"), "RACK_ENV" => nil, "RAILS_ENV" => nil,
                 "MALLOC_ARENA_MAX" => "2", **env }
    )
    load_path = ChildProcess::LOAD_PATH.map { |directory| "-I#{directory}" }
    Process.spawn(environment, RbConfig.ruby, "-W0", *load_path, "-rbundler/setup", "-e",
                  "load Gem.bin_path(#{program.dump}, #{program.dump})", "--", *COMMANDS.fetch(program),
                  File.join(__dir__, "workloads", "web.ru"),
                  in: File::NULL, %i[out err] => @log.path, pgroup: true)
  end
end
