# frozen_string_literal: true

require_relative "../../test_helper"

# With a real Puma: test/acceptance/workers_test.rb.
class PumaPluginTest < MemscopeTest
  # What the plugin asks of Puma, and what it has Puma call.
  class Launcher
    attr_reader :options, :hooks

    def initialize(workers:)
      @options = { workers: workers }
      @hooks = []
    end

    def events = self
    def config = self
    def log_writer = nil
    def register(name) = hooks << name
    def configure = yield(self)
    def on_worker_boot = hooks << :on_worker_boot
    def before_fork = hooks << :before_fork
    def after_worker_fork = hooks << :after_worker_fork
  end

  # Puma 6.4 and newer.
  class NewerLauncher < Launcher
    def silence_fork_callback_warning = hooks << :silent
    def before_worker_boot = hooks << :before_worker_boot
  end

  def setup
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    require "puma"
    require "puma/plugin"
    super
  end

  # Its threads do not start: Puma starts them.
  def plugin = Puma::Plugins.find("memscope").new

  def started(launcher) = plugin.start(launcher).then { launcher.hooks }

  # If a plugin has `config`, Puma drops the first option of the configuration file.
  def test_it_has_no_config
    refute_respond_to plugin, :config
  end

  def test_in_a_cluster_each_fork_is_prepared_and_each_worker_is_met
    known = %i[on_worker_boot before_fork after_worker_fork ping!]

    assert_equal known, started(Launcher.new(workers: 2))
    assert_equal [:silent, :before_worker_boot, *known.drop(1)], started(NewerLauncher.new(workers: 2))
  end

  def test_without_workers_it_listens_once_puma_has_booted
    [0, nil].each { |workers| assert_includes started(Launcher.new(workers: workers)), :on_booted }
  end

  def test_an_error_does_not_end_puma
    verbose = $VERBOSE
    $VERBOSE = false # it warns
    _out, err = capture_io { plugin.start(Object.new) }

    assert_match(/\Amemscope: workers are not watched: undefined method .*options.*\(NoMethodError\)$/m, err)
  ensure
    $VERBOSE = verbose
  end
end
