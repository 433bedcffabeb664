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

  def test_without_rails_there_is_no_railtie
    ran = ChildProcess.run("puts $LOADED_FEATURES.grep(/railtie/).size, Memscope.const_defined?(:Railtie)",
                           requires: ["memscope"])

    assert_equal "0\nfalse\n", ran.out
  end
end
