# frozen_string_literal: true

require "fileutils"
require "socket"
require "tmpdir"
require_relative "puma_process"

# workloads/web.ru, served by a real Puma or rackup.
class WebServer < PumaProcess
  ARGUMENTS = { "puma" => %w[-b tcp://127.0.0.1:0 -t 1:16], "rackup" => %w[-s puma -o 127.0.0.1 -p 0] }.freeze

  def initialize(program = "puma", env: {}, preload: nil)
    @directory = Dir.mktmpdir
    environment = self.class.environment(preload, { "RACK_ENV" => nil, "MALLOC_ARENA_MAX" => "2",
                                                    **env })
    rackup = File.join(__dir__, "workloads", "web.ru")
    super(self.class.command(program, *ARGUMENTS.fetch(program), rackup), environment, @directory)
  end

  def rss_bytes = File.read("/proc/#{pid}/statm").split[1].to_i * 4096

  # @return [Net::HTTPResponse]
  def get(path, headers = {}) = request(Net::HTTP::Get.new(path, headers))

  # @param text [String] a request as it is sent over the wire
  # @return [String] the response
  def raw(text)
    TCPSocket.open("127.0.0.1", port) do |socket|
      socket.write(text)
      socket.read
    end
  rescue Errno::ECONNRESET, Errno::EPIPE
    ""
  end

  def stop
    super
  ensure
    FileUtils.remove_entry(@directory)
  end
end
