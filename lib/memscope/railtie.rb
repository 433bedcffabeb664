# frozen_string_literal: true

module Memscope
  # What memscope adds to a Rails application by itself: its rake tasks, and one line in the log at boot that says
  # which allocator serves malloc. Nothing is mounted.
  class Railtie < ::Rails::Railtie
    rake_tasks { require "memscope/tasks" }

    config.after_initialize { Railtie.log(::Rails.logger) }

    class << self
      # Logs which allocator serves malloc, and the proof. Never raises: a boot does not fail for this.
      #
      # @param logger [Logger, nil]
      # @return [void]
      def log(logger)
        logger&.info(sentence(Memscope.allocator))
      rescue StandardError => e
        warn "memscope #{VERSION}: not logged at boot: #{e.message} (#{e.class})"
      end

      private

      def sentence(allocator)
        name = [allocator.name, allocator.version].compact.join(" ")
        proof = "#{'not ' unless allocator.proved?}proved: #{allocator.proof}"
        "memscope #{VERSION}: malloc is #{name} (#{proof.tr("\n", ' ')})"
      end
    end
  end
end
