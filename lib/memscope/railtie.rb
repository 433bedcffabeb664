# frozen_string_literal: true

module Memscope
  # What memscope adds to a Rails application by itself: `config.memscope`, its rake tasks, a line in the log at boot
  # that says which allocator serves malloc, and the socket where `listen` is configured. Nothing is mounted.
  #
  # `config.memscope.listen = true` is the same as Memscope.configure, at any place where Rails is configured. A boot
  # never fails for an environment variable: what is wrong with one is logged, and the setting is what lets nobody do
  # more than was meant.
  class Railtie < ::Rails::Railtie
    config.memscope = Configuration::Direct.new
    Configuration.excuse_environment

    rake_tasks { require "memscope/tasks" }

    config.after_initialize { Railtie.start }

    class << self
      # Logs, and listens where that is configured. Never raises: a boot does not fail for this.
      #
      # @return [void]
      def start
        configuration = Configuration.so_far
        attempt("logged") { log(configuration.logger) }
        attempt("listening") { listen(configuration.listen) } if configuration.listen
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
          logger.warn("memscope #{VERSION}: #{error}; #{outcome(Configuration::SETTINGS.fetch(name))}")
        end
        logger.info(sentence(Memscope.allocator))
      end

      # Code may have said another value, which goes before the variable.
      def outcome(setting)
        value = Configuration.so_far.public_send(setting.name)
        return "#{setting.name} is as code says" unless value == setting.safe

        case setting.name
        when :username, :password then "Memscope::Web lets nobody in by username and password"
        else "#{setting.name} is #{setting.show(value)}"
        end
      end

      def listen(where) = Memscope.listen(path: where.is_a?(String) ? where : nil)

      def sentence(allocator)
        name = [allocator.name, allocator.version].compact.join(" ")
        proof = "#{'not ' unless allocator.proved?}proved: #{allocator.proof}"
        "memscope #{VERSION}: malloc is #{name} (#{proof.tr("\n", ' ')})"
      end
    end
  end
end
