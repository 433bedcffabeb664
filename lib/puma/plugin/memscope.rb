# frozen_string_literal: true

require "puma/plugin"

# `plugin :memscope` in config/puma.rb: each worker reports its memory to the master, which Memscope.workers then shows,
# in the master and in every worker.
#
# Hooks run in each worker before the application is loaded there, and `start` runs before it is in the master: nothing
# here may load memscope's façade so early, or Bundler's `require "memscope"` would find it loaded, and Rails miss the
# railtie.
Puma::Plugin.create do
  def config(dsl)
    in_cluster_mode(dsl) do
      dsl.public_send(dsl.respond_to?(:before_worker_boot) ? :before_worker_boot : :on_worker_boot) do |index|
        @cluster&.boot_worker(index)
      end
      dsl.after_worker_fork { @cluster&.forked }
    end
  end

  def start(launcher)
    require "memscope/workers/cluster"
    return in_background { watch } unless launcher.options[:workers].to_i.positive?

    @cluster = Memscope::Workers::Cluster.new
    launcher.events.register(:ping!) { |handle| @cluster.saw(handle) }
    in_background { run(launcher.options[:preload_app]) }
  rescue StandardError, LoadError => e
    warn "memscope: workers are not watched: #{e.message} (#{e.class})"
  end

  private

  # Puma 8 runs the block when the number of workers is known. Those before it warn of hooks that will not run, in a
  # configuration that sets the number further down too.
  def in_cluster_mode(dsl, &block)
    return dsl.cluster(&block) if dsl.respond_to?(:cluster)

    dsl.silence_fork_callback_warning if dsl.respond_to?(:silence_fork_callback_warning)
    yield
  end

  def watch
    require "memscope"
    Memscope::Workers.watch
  end

  # Workers ask the master over its listener, which needs the façade. Without preload_app! the application is never
  # loaded here, but in workers that are forked off later: the façade is loaded so that its `require` loads it again.
  def run(preloaded)
    preloaded ? require("memscope") : load(File.expand_path("../../memscope.rb", __dir__))
    Memscope.listen if Memscope.respond_to?(:listen)
    @cluster.run
  rescue StandardError => e
    warn "memscope: workers are not watched: #{e.message} (#{e.class})"
  end
end
