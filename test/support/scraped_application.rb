# frozen_string_literal: true

require "tmpdir"

# A Rack application under a real Puma, in a process of its own, for the length of a block.
class ScrapedApplication
  # Seconds in which it has started, on a loaded machine.
  PATIENCE = 60

  # @param rackup [String] the source of its config.ru
  # @yieldparam port [Integer] of 127.0.0.1
  def self.run(rackup, preload: nil, env: {})
    Dir.mktmpdir do |directory|
      application = new(directory, rackup, preload, env)
      begin
        yield application.port
      ensure
        application.stop
      end
    end
  end

  def initialize(directory, rackup, preload, env)
    @log = File.join(directory, "log")
    File.write(File.join(directory, "config.ru"), rackup)
    environment = { "BUNDLE_GEMFILE" => File.join(ChildProcess::ROOT, "Gemfile"), "LD_PRELOAD" => preload,
                    "MALLOC_CONF" => nil, "RUBYOPT" => "-W0", **env }
    @pid = spawn(environment, RbConfig.ruby, *ChildProcess::LOAD_PATH.map { |path| "-I#{path}" }, "-rbundler/setup",
                 "-e", 'load Gem.bin_path("puma", "puma")', "--", "-b", "tcp://127.0.0.1:0", "-t", "1:2", "config.ru",
                 chdir: directory, in: File::NULL, out: @log, err: @log)
    @waiter = Process.detach(@pid)
  end

  # @return [Integer] once it listens
  def port
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
    until (port = File.read(@log)[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1])
      late = Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      raise ChildProcess::Failure, "no port: #{File.read(@log)}" if late || !@waiter.alive?

      sleep 0.02
    end
    port.to_i
  end

  def stop
    Process.kill(:TERM, @pid)
    Process.kill(:KILL, @pid) unless @waiter.join(PATIENCE)
  rescue Errno::ESRCH
    nil
  end
end
