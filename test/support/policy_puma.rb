# frozen_string_literal: true

require "json"
require "tmpdir"
require_relative "puma_load"
require_relative "puma_process"

# A Puma of any version whose workers each take 64 MiB soon after they have booted, and whose policy is in a hurry: its
# minutes are seconds. The limit is always a little above the memory of the processes, so that there is always a reason
# to restart one.
#
#   PolicyPuma.run("8.0.2", gems: "/tmp/gems", setting: "act") { |server| server.requests(seconds: 10) }
class PolicyPuma < PumaProcess
  include PumaLoad

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

  # @return [Array<String>] the lines about the policy in the log
  def decisions = log.lines.grep(/memscope: policy: /)

  def between = BETWEEN

  private

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
