# frozen_string_literal: true

require "puma/plugin"

# `plugin :memscope` in config/puma.rb: each worker reports its memory to the master, which Memscope.workers then shows,
# in the master and in every worker. For that, and so that a purge on the page reaches every worker, all of them listen
# as Memscope.listen does, whatever the setting `listen` says. With prune_bundler also
# `extra_runtime_dependencies ["memscope", "json"]`.
#
# `start` runs before the application is loaded, and so do the hooks in a worker where it is not preloaded: nothing here
# may require "memscope" so early, only parts of it. Bundler's own require would find it loaded, and Rails miss the
# railtie.
Puma::Plugin.create do
  def config(dsl)
    in_cluster_mode(dsl) do
      next if @hooked

      @hooked = true
      boot = dsl.respond_to?(:before_worker_boot) ? :before_worker_boot : :on_worker_boot
      dsl.public_send(boot) { |index| @cluster&.boot_worker(index) }
      dsl.after_worker_fork { @cluster&.forked }
    end
  end

  def start(launcher)
    require "memscope/workers/cluster"
    return in_background { Memscope::Workers.watch } unless launcher.options[:workers].to_i.positive?

    @cluster = Memscope::Workers::Cluster.new
    launcher.events.register(:ping!) { |handle| @cluster.saw(handle) }
    in_background { @cluster.serve }
  rescue StandardError, LoadError => e
    warn "memscope: workers are not watched: #{e.message} (#{e.class})"
  end

  private

  # Puma 8 runs the block when the number of workers is known, twice (8.0.2, both calls of Configuration#clamp). Those
  # before it warn of hooks that will not run, in a configuration that sets the number further down too.
  def in_cluster_mode(dsl, &)
    return dsl.cluster(&) if dsl.respond_to?(:cluster)

    dsl.silence_fork_callback_warning if dsl.respond_to?(:silence_fork_callback_warning)
    yield
  end
end
