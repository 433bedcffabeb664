# frozen_string_literal: true

module Memscope
  # Events for subscribers of ActiveSupport::Notifications, where the application has loaded it.
  # @api private
  module Notifications
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

        payload = yield
        Forks.background("memscope event") do
          reported(event) { ::ActiveSupport::Notifications.instrument(event, payload) }
        end
      end
      nil
    end

    def self.reported(event)
      yield
    rescue StandardError, ScriptError => e
      $stderr.write("memscope: a subscriber to #{event} failed: #{e.message} (#{e.class})\n") # also under -W0
    end
    private_class_method :reported
  end
end
