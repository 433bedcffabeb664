# frozen_string_literal: true

# Starts servers and programs for the duration of a block, and waits for the files that they make.
module Services
  # Ends the process with SIGTERM after the block, and returns the block's value. Sets @ended to the exit status.
  def spawned(*command, environment, directory)
    log = File.join(directory, "#{File.basename(command.first)}.log")
    pid = Process.spawn(environment, *command, chdir: directory, in: File::NULL, out: log, err: log)
    yield pid, log
  ensure
    Process.kill(:TERM, pid)
    Process.wait(pid)
    @ended = Process.last_status
  end

  def await(path, log)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    until File.exist?(path)
      flunk "no #{path}: #{File.read(log)}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.02
    end
    path
  end

  # @return [Array<Integer>] pids
  def children_of(pid) = Dir["/proc/#{pid}/task/*/children"].flat_map { |path| File.read(path).split.map(&:to_i) }

  def skip_without_redis
    skip "redis-server is not installed" unless ENV["CI"] || system("redis-server", "--version", out: File::NULL)
  end

  # For tests of Sidekiq.
  def skip_without_sidekiq
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    skip_under_sanitizer
    skip_without_redis
  end

  # @return [Hash{String => String}] the environment of a Sidekiq whose Redis is in the directory
  def sidekiq_environment(directory, settings = {})
    ChildProcess.environment(nil, { "MEMSCOPE_WORKER_INTERVAL" => "1", "MEMSCOPE_SOCKET_DIRECTORY" => directory,
                                    "REDIS_URL" => "unix://#{directory}/redis.sock",
                                    **ChildProcess::BUNDLE, **settings })
  end

  # @return [Array<String>] the command of the bundle's Sidekiq, which gives jobs a second to end, for that directory
  def sidekiq(directory, application, threads:)
    File.write(File.join(directory, "application.rb"), application)
    [RbConfig.ruby, "-W0", *ChildProcess::LOAD_PATH.map { |path| "-I#{path}" }, Gem.bin_path("sidekiq", "sidekiq"),
     "-r", "./application.rb", "-c", threads.to_s, "-t", "1"]
  end

  # @yieldparam socket [String] the path at which a Redis listens
  def with_redis(directory)
    socket = File.join(directory, "redis.sock")
    redis = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    spawned(*redis, {}, directory) do |_pid, log|
      await(socket, log)
      yield socket
    end
  end
end
