# frozen_string_literal: true

require "tmpdir"
require_relative "puma_process"

# A Rack application under a real Puma, for the length of a block.
class ScrapedApplication < PumaProcess
  # @param rackup [String] the source of its config.ru
  # @yieldparam port [Integer] of 127.0.0.1
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
