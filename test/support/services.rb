# frozen_string_literal: true

# Starts servers and programs for the duration of a block, and waits for the files that they make.
module Services
  # Ends the process with SIGTERM, and returns what the block returns; @ended is then its status.
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
