# frozen_string_literal: true

require "puma/plugin"

# `plugin :memscope` in config/puma.rb: each worker reports its memory to the master, and Memscope.workers returns all
# reports, in the master and in every worker. For this, and so that the pages can purge every worker, all of these
# processes listen as Memscope.listen does, whatever the setting `listen` is. With prune_bundler, also set
# `extra_runtime_dependencies ["memscope", "json"]`.
#
# `start` runs before the application is loaded, and so do the hooks in a worker if the application is not preloaded:
# none of them may require "memscope", only parts of it. Otherwise Bundler's own require would find "memscope" already
# loaded, and Rails would miss the railtie.
Puma::Plugin.create do
  # The plugin defines `start` and not `config`, to which Puma would pass its DSL: if a plugin has `config`, Puma (5.6
  # to 8.0, DSL#_offer_plugins) drops the first option of the configuration file, which may be `workers`.
  def start(launcher)
    require "memscope/setup/facade"
    # Before there is a second thread: two threads that load files which require each other can deadlock.
    Memscope.eager_load!
    unless launcher.options[:workers].to_i.positive?
      Memscope::Workers::PumaHost.listen_when_booted(launcher)
      log = Memscope::Workers::PumaHost.log_of(launcher)
      return in_background { Memscope::Workers.watch(log) }
    end

    cluster = Memscope::Workers::Cluster.new(launcher)
    launcher.config.configure { |dsl| hook(dsl, cluster) }
    launcher.events.register(:ping!) { |handle| cluster.saw(handle) }
    in_background { cluster.serve }
  rescue StandardError, LoadError => e
    warn "memscope: workers are not watched: #{e.message} (#{e.class})"
  end

  private

  def hook(dsl, cluster)
    # Puma 6 looks for `workers` only in the options of the command line, and would warn that the hooks will not run.
    dsl.silence_fork_callback_warning if dsl.respond_to?(:silence_fork_callback_warning)
    boot = dsl.respond_to?(:before_worker_boot) ? :before_worker_boot : :on_worker_boot
    dsl.public_send(boot) { |index| cluster.boot_worker(index) }
    dsl.before_fork { cluster.prepare_fork }
    dsl.after_worker_fork { cluster.forked }
  end
end
