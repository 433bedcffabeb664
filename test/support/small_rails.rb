# frozen_string_literal: true

require "json"
require "tmpdir"

# The source of a small Rails application with memscope, for a script that initializes it: `App.initialize!`.
module SmallRails
  # @param eager_load [Boolean]
  # @param logs [Boolean] whether it prints its log, as "INFO text"
  # @return [String] Ruby
  def self.source(eager_load: true, logs: false)
    logger = logs ? '$stdout, formatter: ->(severity, _, _, text) { [severity, " ", text, 10.chr].join }' : "nil"
    <<~RUBY
      require "logger"
      require "rails"
      require "action_controller/railtie"
      require "memscope"
      class App < Rails::Application
        config.load_defaults 7.2
        config.eager_load = #{eager_load}
        config.secret_key_base = "x" * 64
        config.logger = Logger.new(#{logger})
      end
    RUBY
  end

  # A process that has loaded Rails, which takes most of the time of a boot, but not memscope. It forks for each script.
  FORKS = <<~RUBY
    require "json"
    require "logger"
    require "rails"
    require "action_controller/railtie"
    $stdout.sync = true
    while (line = $stdin.gets)
      script, environment, out, err = JSON.parse(line)
      pid = fork do
        ENV.update(environment)
        $stdin.reopen(File::NULL)
        $stdout.reopen(out, "w")
        $stderr.reopen(err, "w")
        eval(script, TOPLEVEL_BINDING)
      end
      puts Process.wait2(pid).last.exitstatus.to_i
    end
  RUBY
  # How a script ended, and what it printed.
  Result = Struct.new(:out, :err, :status, keyword_init: true) do
    def success? = status.zero?
  end
  MUTEX = Mutex.new
  private_constant :FORKS, :Result, :MUTEX

  # Runs a script in a fork of a process that has loaded Rails.
  #
  # @return [Struct] with #out, #err and #success?
  def self.run(script, env: {})
    raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE

    Dir.mktmpdir do |directory|
      paths = %w[out err].map { |name| File.join(directory, name) }
      status = MUTEX.synchronize do
        loaded.puts(JSON.generate([script, env, *paths]))
        Integer(loaded.gets)
      end
      out, err = paths.map { |path| File.read(path) }
      Result.new(out: out, err: err, status: status)
    end
  end

  # It ends when its standard input does: with this process.
  def self.loaded
    @loaded ||= IO.popen([ChildProcess.environment(nil, ChildProcess::BUNDLE),
                          *ChildProcess.ruby(gems: true), "-e", FORKS], "r+")
  end
  private_class_method :loaded
end
