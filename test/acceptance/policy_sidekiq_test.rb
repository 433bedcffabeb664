# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/services"
require "memscope/remote/workers/single_host"
require "tmpdir"

# The policy in a real Sidekiq, which the test starts again whenever it has ended, with a real Redis: `rake
# battery:policy_sidekiq` for 10 restarts.
class PolicySidekiqTest < MemscopeTest
  include Services

  parallelize_me!

  RESTARTS = Integer(ENV.fetch("MEMSCOPE_POLICY_RESTARTS", "1"))

  # Each job notes its beginning and its end. Every tenth takes longer than Sidekiq would wait for it (-t 1).
  APPLICATION = <<~RUBY.freeze
    require "memscope"
    require #{File.expand_path('../support/workloads/hasty_policy', __dir__).dump}
    class Job
      include Sidekiq::Job

      def perform(number)
        File.open("began", "a") { |file| file.syswrite("\#{number}\\n") }
        $taken ||= "x" * (64 << 20)
        sleep(number % 10 == 0 ? 2 : 0.05)
        File.open("ended", "a") { |file| file.syswrite("\#{number}\\n") }
      end
    end
    Sidekiq.configure_server do |config|
      config.on(:startup) { Memscope.listen && Memscope::Workers.watch }
    end
  RUBY

  def setup = skip_without_sidekiq

  def environment(directory, policy)
    sidekiq_environment(directory, "MEMSCOPE_POLICY" => policy, "MEMSCOPE_POLICY_INTERVAL" => "1",
                                   "MEMSCOPE_POLICY_MIN_UPTIME" => "1", "MEMSCOPE_POLICY_SUPERVISED" => "true")
  end

  def with_sidekiq(directory, policy: "act", &block)
    command = sidekiq(directory, APPLICATION, threads: 4)
    with_redis(directory) do |socket|
      with_jobs(socket) { spawn_again(command, environment(directory, policy), directory, &block) }
    end
  end

  # Starts the command again whenever it ends, as a supervisor would, until the block is true.
  def spawn_again(command, environment, directory)
    log = File.join(directory, "sidekiq.log")
    statuses = []
    until yield(statuses, log)
      pid = Process.spawn(environment, *command, chdir: directory, in: File::NULL, %i[out err] => [log, "a"])
      sleep 0.1 until Process.wait(pid, Process::WNOHANG) || (ending = yield(statuses, log))
      Process.kill(:TERM, pid) && Process.wait(pid) if ending
      statuses << Process.last_status
    end
    [statuses, File.read(log)]
  end

  # Puts jobs into the queue, as Sidekiq's client does, until the restarts are over.
  def with_jobs(socket)
    require "redis_client"
    redis = RedisClient.new(path: socket)
    @pushed = 0
    @producer = Thread.new do
      until @drains
        job = { class: "Job", args: [@pushed], jid: format("%024d", @pushed), queue: "default", retry: true,
                created_at: Time.now.to_f, enqueued_at: Time.now.to_f }
        redis.call("LPUSH", "queue:default", JSON.generate(job))
        @pushed += 1
        sleep 0.3
      end
    end
    yield
  ensure
    @drains = true
    @producer&.join
  end

  def numbers(directory, name) = File.readlines(File.join(directory, name)).map(&:to_i)

  def test_no_job_is_cut_or_lost
    Dir.mktmpdir do |directory|
      statuses, log = with_sidekiq(directory) do |ended, path|
        ended.size >= RESTARTS && restarts(File.read(path)) >= RESTARTS && drained?(directory)
      end

      assert_equal [true], statuses.map(&:success?).uniq
      assert_operator restarts(log), :>=, RESTARTS
      began, ended = %w[began ended].map { |name| numbers(directory, name) }

      assert_equal began.sort, ended.sort, "none was cut"
      assert_equal began.uniq.sort, began.sort, "none ran twice"
      assert_equal (0...@pushed).to_a, ended.sort, "none was lost"
    end
  end

  def restarts(log) = log.scan("policy: restart process").size

  # Whether all jobs have ended.
  def drained?(directory)
    @drains = true
    @producer.join
    numbers(directory, "ended").size == @pushed
  end

  def test_observing_lets_it_run
    Dir.mktmpdir do |directory|
      observed = /policy: would restart process \d+: .* of the limit/
      statuses, log = with_sidekiq(directory, policy: "observe") do |_ended, path|
        File.exist?(path) && File.read(path).match?(observed)
      end

      assert_equal [true], statuses.map(&:success?)
      refute_match(/TSTP|no longer accepting/, log)
    end
  end
end
