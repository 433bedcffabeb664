# frozen_string_literal: true

require_relative "test_helper"

class RailtieTest < MemscopeTest
  APPLICATION = <<~RUBY
    require "logger"
    require "rails"
    require "action_controller/railtie"
    require "memscope"
    class App < Rails::Application
      config.load_defaults 7.2
      config.eager_load = true
      config.secret_key_base = "x" * 64
      config.logger = Logger.new($stdout, formatter: ->(severity, _time, _name, message) { "\#{severity} \#{message}\\n" })
    end
  RUBY

  # In place of the listener.
  LISTENED = <<~RUBY
    def Memscope.listen(path: nil)
      puts "listens at \#{path.inspect}"
    end
  RUBY

  def rails(script, **options)
    ran = ChildProcess.run("#{APPLICATION}\n#{script}", bundler: true, **options)

    assert_predicate ran, :success?, ran
    ran
  end

  both_allocators "logs one line at boot" do |preload|
    skip_under_sanitizer
    lines = rails("App.initialize!", preload: preload).out.lines.grep(/memscope/)

    assert_equal 1, lines.size
    assert_match(/\AINFO memscope 0\.1\.0: malloc is #{preload ? 'jemalloc 5' : 'glibc 2'}\S* \(proved: .+\)\n\z/,
                 lines.first)
  end

  def test_gives_the_application_its_rake_tasks
    out = rails('App.initialize!; App.load_tasks; puts Rake::Task.task_defined?("memscope:report")').out

    assert_equal "true", out.lines.last.chomp
  end

  def test_mounts_nothing
    out = rails("App.initialize!; p App.routes.routes.map { |route| route.path.spec.to_s }.grep(/memscope/)").out

    assert_equal "[]", out.lines.last.chomp
  end

  def test_a_logger_that_fails_does_not_stop_the_boot
    ran = rails(<<~RUBY)
      App.config.logger.define_singleton_method(:info) { |*| raise IOError, "disk full" }
      App.initialize!
      puts "booted"
    RUBY

    assert_equal "booted", ran.out.lines.last.chomp
    assert_match(/^memscope 0\.1\.0: not logged at boot: disk full \(IOError\)$/, ran.err)
  end

  # In the order in which Rails comes by them: each goes before the one above, and before the environment.
  def test_config_memscope
    found = rails(<<~RUBY, env: { "MEMSCOPE_METRICS_ARENAS" => "1", "MEMSCOPE_WORKER_INTERVAL" => "20" }).out
      App.config.memscope.worker_interval_seconds = 30
      App.config.memscope.username = "memory"
      App.initializer("later", before: :load_config_initializers) do
        config.memscope.username += "!"
        Memscope.configure { |c| c.background_thread = true }
      end
      App.config.after_initialize { App.config.memscope.password = "x" }
      App.initialize!
      c = Memscope.configuration
      puts [c.worker_interval_seconds, c.username, c.background_thread, c.metrics_arenas, c.password,
            c.logger.equal?(Rails.logger), App.config.memscope.username].join(" ")
    RUBY

    assert_equal "30 memory! true true x true memory!", found.lines.last.chomp
  end

  def test_wrong_settings_of_the_application
    found = rails(<<~RUBY).out
      def refused
        yield
      rescue ArgumentError, Memscope::Configuration::Late => e
        puts e.message
      end
      refused { App.config.memscope.lisen = true }
      refused { App.config.memscope.listen = "run.sock" }
      Memscope.configuration
      refused { App.config.memscope.listen = true }
    RUBY
    unknown, wrong, late = found.lines.last(3)

    assert_match(/given the setting lisen, allowed: listen, socket_directory, /, unknown)
    assert_equal 'Memscope.configure: listen: given "run.sock", allowed: true, false, an absolute path', wrong.chomp
    assert_match(/\AMemscope.configure: too late, /, late)
  end

  # The boot goes on, with what is right.
  def test_wrong_variables_are_logged
    variables = { "MEMSCOPE_LISTEN" => "yes", "MEMSCOPE_ACTIONS" => "off", "MEMSCOPE_WORKER_INTERVAL" => "5" }
    lines = rails(<<~RUBY, env: variables).out.lines(chomp: true)
      #{LISTENED}
      Memscope.configure { |c| c.username = "memory" }
      App.initialize!
      c = Memscope.configuration
      puts [c.listen, c.actions, c.worker_interval_seconds, c.username].join(" ")
    RUBY

    assert_equal "false true 5 memory", lines.last
    assert_empty lines.grep(/listens/)
    assert_equal ['WARN memscope 0.1.0: MEMSCOPE_LISTEN: given "yes", allowed: 1, true, 0, false, an absolute path; ' \
                  "not set",
                  'WARN memscope 0.1.0: MEMSCOPE_ACTIONS: given "off", allowed: 1, true, 0, false; not set'],
                 lines.grep(/WARN/)
  end

  # With what the application has configured last.
  def test_listens_where_that_is_configured
    out = rails("#{LISTENED}App.initialize!", env: { "MEMSCOPE_LISTEN" => "/run/memscope/a.sock" }).out

    assert_includes out.lines, "listens at \"/run/memscope/a.sock\"\n"

    out = rails(<<~RUBY).out
      #{LISTENED}
      App.initializer("later", after: :load_config_initializers) { Memscope.configure { |c| c.listen = true } }
      App.initialize!
    RUBY

    assert_includes out.lines, "listens at nil\n"
  end

  def test_a_socket_that_cannot_be_opened_does_not_stop_the_boot
    ran = rails(<<~RUBY)
      def Memscope.listen(path:) = raise(ArgumentError, "too long a path")
      App.config.memscope.listen = true
      App.initialize!
      puts "booted"
    RUBY

    assert_equal "booted", ran.out.lines.last.chomp
    assert_match(/^memscope 0\.1\.0: not listening at boot: too long a path \(ArgumentError\)$/, ran.err)
  end

  def test_without_rails_there_is_no_railtie
    ran = ChildProcess.run("puts $LOADED_FEATURES.grep(/railtie/).size, Memscope.const_defined?(:Railtie)",
                           requires: ["memscope"])

    assert_equal "0\nfalse\n", ran.out
  end
end
