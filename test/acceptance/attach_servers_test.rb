# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_load"
require_relative "../support/puma_process"
require_relative "../support/services"
require_relative "../support/tracer"
require "memscope/remote/attachment"
require "tmpdir"

# A Puma cluster and a Sidekiq that have not loaded memscope, under load, while they are copied and made to listen: no
# request fails, and no job is lost or runs twice. `rake battery:attach` is the long form.
class AttachServersTest < MemscopeTest
  include Services

  TIMES = Integer(ENV.fetch("MEMSCOPE_SERVED", "3"))
  # Seconds in which all jobs must end.
  PATIENCE = 60
  # Seconds of the control, without attach.
  CONTROL = ENV.key?("MEMSCOPE_SERVED") ? 30 : 1

  # Two workers of three threads each, which check each other's answers.
  class Shop < PumaProcess
    include PumaLoad

    CONFIGURATION = <<~RUBY
      require "digest"
      work = -> { Digest::MD5.hexdigest((0...500).map { |index| (index * 7919 % 1013).to_s }.join) }
      expected = work.call
      workers 2
      threads 3, 3
      preload_app!
      bind "tcp://127.0.0.1:0"
      app { |_env| [work.call == expected ? 200 : 500, {}, ["done"]] }
    RUBY

    def initialize(directory)
      Dir.mkdir(File.join(directory, "config"))
      File.write(File.join(directory, "config/puma.rb"), CONFIGURATION)
      super(self.class.command("puma"), self.class.environment(nil, { "RACK_ENV" => "test" }), directory)
      until_found("workers") { workers.size == 2 }
      until_found("answer") { request(Net::HTTP::Get.new("/")).is_a?(Net::HTTPOK) }
    end

    def between = 0.01
  end

  JOBS = <<~RUBY
    class Job
      include Sidekiq::Job

      def perform(number)
        kept = Array.new(2_000) { |index| "\#{number} \#{index}" * 5 }
        sleep 0.01
        File.open("ended", "a") { |file| file.syswrite("\#{number} \#{kept.last.size}\\n") }
      end
    end
  RUBY

  def setup = skip_under_sanitizer

  %i[copies listeners].each do |way|
    define_method("test_#{way}_of_a_Puma_cluster") do
      Dir.mktmpdir do |directory|
        Shop.run(directory) do |server|
          workers = server.workers
          control, failed = loaded(server) { sleep CONTROL }

          assert_empty failed, "without attach"
          answered, failed = loaded(server) { TIMES.times { |index| send(way, workers[index % 2]) } }
          show("#{answered.round} requests a second, #{control.round} without attach")

          assert_empty failed
          assert_equal workers, server.workers
        end
      end
    end

    define_method("test_#{way}_of_a_Sidekiq") do
      skip_without_sidekiq
      Dir.mktmpdir do |directory|
        pushed = with_sidekiq(directory) { |pid| TIMES.times { send(way, pid) } }
        ended = File.readlines(File.join(directory, "ended")).map(&:to_i)
        show("#{pushed} jobs")

        assert_equal (0...pushed).to_a, ended.sort
        assert_empty File.readlines(@log).grep(/\b(?:ERROR|FATAL)\b/)
      end
    end
  end

  private

  def copies(pid)
    outcome = Tracer.copy(pid, "6 * 7", "ObjectSpace.count_objects[:TOTAL].positive?")

    assert_equal %w[42 true], outcome.answers, outcome.inspect
    pauses << (outcome.facts["pause_ns"].to_i / 1e6)
  end

  # As `memscope attach` does, with and without --close.
  def listeners(pid)
    attachment = Memscope::Attachment.new(pid)
    opened = attachment.open
    pauses << opened[/[\d.]+(?= ms)/].to_f

    assert_equal pid, Memscope::Client.new(pid).call(:process_memory).pid
    assert_match(/no longer listens|closed/, attachment.close)
  end

  def pauses = @pauses ||= []

  # @return [Array(Float, Array<String>)] answered requests a second, and the errors of the others
  def loaded(server, &)
    began = Tracer.now
    worked = Thread.new(&)
    answered, failed = server.under_load { !worked.alive? }
    worked.value
    [answered / (Tracer.now - began), failed]
  end

  # Puts jobs into the queue until the block returns, and waits until they have ended.
  #
  # @return [Integer] their number
  def with_sidekiq(directory)
    environment = sidekiq_environment(directory)
    command = sidekiq(directory, JOBS, threads: 4)
    with_redis(directory) do |socket|
      spawned(*command, environment, directory) do |pid, log|
        @log = log
        push(socket) { await(File.join(directory, "ended"), log) && yield(pid) }
        pushed = Tracer.now
        sleep 0.1 until File.readlines(File.join(directory, "ended")).size >= @pushed || Tracer.now > pushed + PATIENCE
      end

      assert_predicate @ended, :success?
    end
    @pushed
  end

  def push(socket, &)
    require "redis_client"
    redis = RedisClient.new(path: socket)
    @pushed = 0
    worked = Thread.new(&)
    while worked.alive?
      job = { class: "Job", args: [@pushed], jid: format("%024d", @pushed), queue: "default", retry: false,
              created_at: Time.now.to_f, enqueued_at: Time.now.to_f }
      redis.call("LPUSH", "queue:default", JSON.generate(job))
      @pushed += 1
      sleep 0.02
    end
    worked.value
  end

  def show(text)
    return unless ENV.key?("MEMSCOPE_SERVED")

    sorted = pauses.sort
    puts "#{name}: #{sorted.size} times, pause p50 #{sorted[sorted.size / 2].round(2)} ms, " \
         "p99 #{sorted[sorted.size * 99 / 100].round(2)} ms; #{text}"
  end
end
