# frozen_string_literal: true

module Memscope
  # Adds to a Rails application: `config.memscope`, eager loading, the rake tasks, a line in the log at boot that names
  # the allocator, the socket if `listen` is configured, the profile of objects if `objects_profile` is, and the
  # history of the process unless `history` is false. It mounts nothing.
  #
  # `config.memscope.listen = true`, wherever Rails is configured, does the same as Memscope.configure. An invalid
  # environment variable never fails a boot: the error is logged, and the setting gets its least permissive value.
  class Railtie < ::Rails::Railtie
    config.memscope = Configuration.direct
    Configuration.excuse_environment

    config.eager_load_namespaces << Memscope # which has eager_load!

    rake_tasks { require "memscope/tasks" }

    console { Railtie.offer_mem }

    config.after_initialize { Railtie.start }

    class << self
      # Logs, listens, profiles objects and keeps a history, as configured. Never raises, so that no boot fails.
      def start
        configuration = Configuration.so_far
        attempt("logged") { log(configuration.logger) }
        attempt("listening") { listen(configuration.listen) } if configuration.listen
        ObjectProfile.boot { configuration.objects_profile } if configuration.objects_profile
        attempt("sampled") { History.start } if configuration.history
      end

      # In a console whose IRB takes commands of others.
      # @api private
      def offer_mem
        require "memscope/irb"
      rescue LoadError => e
        Configuration.so_far.logger&.info("memscope #{VERSION}: no command mem: #{e.message}")
      end

      private

      def attempt(what)
        yield
      rescue StandardError => e
        warn "memscope #{VERSION}: not #{what} at boot: #{e.message} (#{e.class})"
      end

      def log(logger)
        return unless logger

        Configuration.environment_errors.each do |name, error|
          value = Configuration.so_far.public_send(name) # code may have set it
          logger.warn("memscope #{VERSION}: #{error}; #{name} is #{Configuration::SETTINGS.fetch(name).show(value)}")
        end
        allocator = Memscope.allocator
        name = [allocator.name, allocator.version].compact.join(" ")
        proof = "#{'not ' unless allocator.proved?}proved: #{allocator.proof}"
        logger.info("memscope #{VERSION}: malloc is #{name} (#{proof.tr("\n", ' ')})")
      end

      def listen(where) = Memscope.listen(path: where.is_a?(String) ? where : nil)
    end
  end
end
