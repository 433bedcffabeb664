# frozen_string_literal: true

require_relative "puma_process"
require_relative "small_rails"

# Puma with a small Rails application, which listens.
class RailsServer < PumaProcess
  # @param directory [String] its own
  # @param application [String] Ruby: controllers and routes
  # @param preload [String, nil] as ChildProcess.run takes it
  def initialize(directory, application, preload, threads: 2)
    @directory = directory
    source = "#{SmallRails.source}#{application}App.initialize!\nrun App\n"
    File.write(rackup = File.join(directory, "config.ru"), source)
    super(self.class.command("puma", "-b", "tcp://127.0.0.1:0", "-t", "1:#{threads}", rackup),
          self.class.environment(preload, { "RAILS_ENV" => "production", "MEMSCOPE_LISTEN" => "1", **sockets }),
          directory)
  end

  # @return [String] the body
  def get(path) = request(Net::HTTP::Get.new(path)).body

  # Runs the command memscope where it finds this server.
  def memscope(*arguments)
    executable = File.join(ChildProcess::ROOT, "exe", "memscope")
    ChildProcess.run_command(*ChildProcess.ruby, executable, *arguments, env: sockets)
  end

  private

  def sockets = { "MEMSCOPE_SOCKET_DIRECTORY" => File.join(@directory, "sockets") }
end
