# frozen_string_literal: true

require "tmpdir"
require_relative "puma_process"

# A Rack application under a real Puma while a block runs.
class ScrapedApplication < PumaProcess
  # @param rackup [String] the source of its config.ru
  # @yieldparam port [Integer] the port on 127.0.0.1
  def self.run(rackup, preload: nil, env: {})
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "config.ru"), rackup)
      super(directory, environment(preload, env)) { |server| yield server.port }
    end
  end

  def initialize(directory, environment)
    super(self.class.command("puma", "-b", "tcp://127.0.0.1:0", "-t", "1:2", "config.ru"), environment, directory)
  end
end
