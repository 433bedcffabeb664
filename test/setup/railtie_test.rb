# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../support/small_rails"

class RailtieTest < MemscopeTest
  parallelize_me!

  # Replaces the listener.
  LISTENED = <<~RUBY
    def Memscope.listen(path: nil)
      puts "listens at \#{path.inspect}"
    end
  RUBY

  REFUSED = <<~RUBY
    def refused
      yield
    rescue ArgumentError, Memscope::Configuration::Late => e
      puts e.message
    end
  RUBY

  def rails(script, preload: nil, env: {})
    script = "#{SmallRails.source(eager_load: false, logs: true)}\n#{script}"
    ran = if preload
            ChildProcess.run(script, bundle: true, preload: preload, env: env)
          else
            SmallRails.run(script, env: env)
          end

    assert_predicate ran, :success?, ran
    ran
  end

  # One line in the log, rake tasks and a history, but no route, no socket, no file and no thread for one.
  both_allocators "a boot with no setting", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    Dir.mktmpdir do |directory|
      lines = rails(<<~RUBY, preload: preload, env: { "TMPDIR" => directory, "XDG_RUNTIME_DIR" => directory }).out.lines
        App.initialize!
        sockets = Dir["/proc/self/fd/*"].count { |path| File.socket?(path) }
        puts [sockets, Thread.list.map(&:name).grep(/memscope(?! sampler)/),
              Dir.children(#{directory.inspect}).grep(/memscope/)].inspect
        puts Memscope::History.running?
        App.load_tasks
        p Rake::Task.task_defined?("memscope:report")
        p App.routes.routes.map { |route| route.path.spec.to_s }.grep(/memscope/)
      RUBY

      assert_equal ["[0, [], []]", "true", "true", "[]"], lines.last(4).map(&:chomp)
      logged = lines.grep(/memscope 0/)

      assert_equal 1, logged.size
      assert_match(/\AINFO memscope 0\.1\.0: malloc is #{preload ? 'jemalloc 5' : 'glibc 2'}\S* \(proved: .+\)\n\z/,
                   logged.first)
    end
  end

  def test_a_logger_and_a_socket_that_fail_do_not_stop_the_boot
    ran = rails(<<~RUBY, env: { "MEMSCOPE_LISTEN" => "/a.sock", "MEMSCOPE_HISTORY" => "0" })
      def Memscope.listen(path:) = raise(ArgumentError, "no place for \#{path}")
      App.config.logger.define_singleton_method(:info) { |*| raise IOError, "disk full" }
      App.initialize!
      puts "booted, history: \#{Memscope::History.running?}"
    RUBY

    assert_equal "booted, history: false", ran.out.lines.last.chomp
    assert_match(/^memscope 0\.1\.0: not logged at boot: disk full \(IOError\)$/, ran.err)
    assert_match(%r{^memscope 0\.1\.0: not listening at boot: no place for /a\.sock \(ArgumentError\)$}, ran.err)
  end

  def test_a_profile_of_objects_for_as_long_as_the_process_runs
    ran = rails(<<~RUBY, env: { "MEMSCOPE_OBJECTS_PROFILE" => "1" })
      App.initialize!
      puts Memscope::ObjectProfile.running?, Thread.list.map(&:name).include?("memscope objects")
      Memscope::ObjectProfile.boot { true } # another one is not started
    RUBY

    assert_equal %w[true true], ran.out.lines(chomp: true).last(2)
    refute_match(/not profiled/, ran.err)
  end

  # Settings in the order in which Rails evaluates them: each overrides the ones before it, and the environment. Then
  # the process listens, with the last value.
  def test_config_memscope
    lines = rails(<<~RUBY, env: { "MEMSCOPE_METRICS_ARENAS" => "1", "MEMSCOPE_WORKER_INTERVAL" => "20" })
      #{LISTENED}
      #{REFUSED}
      refused { App.config.memscope.lisen = true }
      refused { App.config.memscope.listen = "run.sock" }
      App.config.memscope.worker_interval_seconds = 30
      App.config.memscope.username = "memory"
      App.config.memscope.listen = "/a.sock"
      App.initializer("later", after: :load_config_initializers) do
        config.memscope.username += "!"
        Memscope.configure { |c| c.background_thread = c.listen = true }
      end
      App.config.after_initialize { App.config.memscope.password = "x" }
      App.initialize!
      c = Memscope.configuration
      puts [c.worker_interval_seconds, c.username, c.background_thread, c.metrics_arenas, c.password,
            c.logger.equal?(Rails.logger), App.config.memscope.username].join(" ")
      refused { App.config.memscope.listen = false }
    RUBY
    unknown, wrong, _log, listens, found, late = lines.out.lines(chomp: true)

    assert_match(/given the setting lisen, allowed: listen, socket_directory, /, unknown)
    assert_equal 'Memscope.configure: listen: given "run.sock", allowed: true, false, an absolute path', wrong
    assert_equal "listens at nil", listens
    assert_equal "30 memory! true true x true memory!", found
    assert_match(/\AMemscope.configure: too late, /, late)
  end

  # The boot continues with the valid values; the others get their least permissive value.
  def test_wrong_variables_are_logged
    variables = { "MEMSCOPE_LISTEN" => "si", "MEMSCOPE_ACTIONS" => "of", "MEMSCOPE_WORKER_INTERVAL" => "5",
                  "MEMSCOPE_USERNAME" => "a:b", "MEMSCOPE_BACKGROUND_THREAD" => "of" }
    lines = rails(<<~RUBY, env: variables).out.lines(chomp: true)
      #{LISTENED}
      Memscope.configure { |c| c.background_thread = true }
      App.initialize!
      c = Memscope.configuration
      puts [c.listen, c.actions, c.worker_interval_seconds, c.username.inspect, c.background_thread].join(" ")
    RUBY
    words = "1, true, on, yes, 0, false, off, no"

    assert_equal 'false false 5 "" true', lines.last
    assert_empty lines.grep(/listens/)
    assert_equal(["MEMSCOPE_LISTEN: given \"si\", allowed: #{words}, an absolute path; listen is false",
                  'MEMSCOPE_USERNAME: given "a:b", allowed: a String that is not empty, without ":"; username is ""',
                  "MEMSCOPE_ACTIONS: given \"of\", allowed: #{words}; actions is false",
                  "MEMSCOPE_BACKGROUND_THREAD: given \"of\", allowed: #{words}; " \
                  "background_thread is true"],
                 lines.filter_map { |line| line[/\AWARN memscope 0\.1\.0: (.*)/, 1] })
  end

  def test_without_rails_there_is_no_railtie
    ran = ChildProcess.run("puts $LOADED_FEATURES.grep(/railtie/).size, Memscope.const_defined?(:Railtie)",
                           requires: ["memscope"])

    assert_equal "0\nfalse\n", ran.out
  end
end
