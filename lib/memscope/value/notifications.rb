# frozen_string_literal: true

module Memscope
  # Events for subscribers of ActiveSupport::Notifications, where the application has loaded it.
  # @api private
  module Notifications
    THREAD = "memscope event"
    # Maximum threads at a time. An event beside that many subscribers that have not returned is lost.
    MAX_THREADS = 16

    # Runs the subscribers in a thread of their own, so that the process's sampling and its pages do not wait for them.
    # A subscriber that raises is reported on standard error.
    #
    # @param name [Symbol] of the event "name.memscope"
    # @yieldreturn [Hash{Symbol => Object}] its payload, which is only made for a subscriber
    # @return [void]
    def self.tell(name)
      return unless defined?(::ActiveSupport::Notifications) && !::ActiveSupport.autoload?(:Notifications)

      event = "#{name}.memscope"
      reported(event) do
        next unless ::ActiveSupport::Notifications.notifier.listening?(event)

        raise ThreadError, "#{MAX_THREADS} of them are still running" if running >= MAX_THREADS

        payload = yield
        Forks.background(THREAD) do
          reported(event, Exception) { ::ActiveSupport::Notifications.instrument(event, payload) }
        end
      end
      nil
    end

    def self.running = Thread.list.count { |thread| thread.name == THREAD }

    # In its own thread, any Exception: NoMemoryError must not reach the host by Thread.abort_on_exception.
    def self.reported(event, *others)
      yield
    rescue StandardError, ScriptError, *others => e
      $stderr.write("memscope: a subscriber to #{event} failed: #{e.message} (#{e.class})\n") # also under -W0
    end
    private_class_method :running, :reported
  end
end
