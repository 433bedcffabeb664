# frozen_string_literal: true

require "json"
require "tmpdir"
require_relative "puma_process"

# A Puma of any version whose workers each take 64 MiB soon after they have booted, and whose policy is in a hurry: its
# minutes are seconds. The limit is always a little above the memory of the processes, so that there is always a reason
# to restart one.
#
#   PolicyPuma.run("8.0.2", gems: "/tmp/gems", setting: "act") { |server| server.requests(seconds: 10) }
class PolicyPuma < PumaProcess
  WORKERS = 3
  # Seconds between two requests of a client, of which there are four: the load of more would slow other tests down.
  BETWEEN = ENV.key?("MEMSCOPE_PUMA_GEMS") ? 0 : 0.02

  def self.run(*arguments, **options)
    Dir.mktmpdir { |directory| super(directory, *arguments, **options) }
  end

  # @return [String] where it runs
  attr_reader :directory

  # @param version [String, nil] nil: the bundle's
  # @param gems [String, nil] where that version is installed; nil: in the bundle
  # @param setting [String] of the policy
  # @param configuration [String] more lines of config/puma.rb
  # @param through [Array<String>] a command that starts Puma
  def initialize(directory, version = nil, gems: nil, setting: "act", configuration: "", through: [])
    @directory = directory
    Dir.mkdir(File.join(directory, "config"))
    File.write(File.join(directory, "config/puma.rb"), <<~RUBY)
      require #{File.join(__dir__, 'workloads/hasty_policy').dump}
      workers #{WORKERS}
      plugin :memscope
      bind "tcp://127.0.0.1:0"
      threads 2, 2
      raise_exception_on_sigterm false
      worker_check_interval 1
      app HastyPolicy::Application.new
      #{configuration}
    RUBY
    super([*through, *(gems ? of_gems(version) : self.class.command("puma"))], settings(gems, setting), directory)
  end

  # @return [Array<Integer>] pids
  def workers = Dir["/proc/#{pid}/task/*/children"].flat_map { |path| File.read(path).split.map(&:to_i) }.sort

  # @return [Array<String>] the lines about the policy in the log
  def decisions = log.lines.grep(/memscope: policy: /)

  # Sends requests from several threads until the block returns true: some with a connection each, others with one that
  # is kept alive. A client repeats a request that Puma has not begun to answer when it closes such a connection, as
  # Net::HTTP does.
  #
  # @return [Array(Integer, Array<String>)] number of answered requests, and the errors of the others
  def under_load(threads: 4)
    answered = Array.new(threads, 0)
    failed = Queue.new
    stopped = false
    clients = Array.new(threads) do |index|
      Thread.new do
        until stopped
          answered[index] += client(failed, kept: index.odd?) { stopped }
          sleep BETWEEN
        end
      end
    end
    sleep PAUSE until yield
    stopped = true
    clients.each(&:join)
    [answered.sum, Array.new(failed.size) { failed.pop }]
  end

  private

  def client(failed, kept:)
    done = 0
    Net::HTTP.start("127.0.0.1", port, open_timeout: PATIENCE, read_timeout: PATIENCE) do |http|
      loop do
        request = Net::HTTP::Get.new("/", kept ? {} : { "Connection" => "close" })
        answer = http.request(request)
        answer.is_a?(Net::HTTPOK) ? done += 1 : failed << answer.code
        break if !kept || yield

        sleep BETWEEN
      end
    end
    done
  rescue SystemCallError, IOError, Timeout::Error => e
    failed << "#{e.class}: #{e.message}"
    done
  end

  def settings(gems, setting)
    given = { "RACK_ENV" => "test", "MEMSCOPE_WORKER_INTERVAL" => "1", "MEMSCOPE_SOCKET_DIRECTORY" => @directory,
              "MEMSCOPE_POLICY" => setting, "MEMSCOPE_POLICY_INTERVAL" => "7", "MEMSCOPE_POLICY_MIN_UPTIME" => "7" }
    return self.class.environment(nil, given) unless gems

    ChildProcess.environment(nil, { "GEM_HOME" => gems, "GEM_PATH" => gems, **given })
  end

  def of_gems(version)
    [*ChildProcess.ruby(gems: true), "-W0",
     "-e", "gem 'puma', #{version.dump}; load Gem.bin_path('puma', 'puma', #{version.dump})", "--"]
  end
end
