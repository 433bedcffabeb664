# frozen_string_literal: true

module Memscope
  # Events for subscribers of ActiveSupport::Notifications, where the application has loaded it.
  # @api private
  module Notifications
    # Runs the subscribers in this thread. A subscriber that raises is reported on standard error.
    #
    # @param name [Symbol] of the event "name.memscope"
    # @yieldreturn [Hash{Symbol => Object}] its payload, which is only made for a subscriber
    # @return [void]
    def self.tell(name)
      return unless defined?(::ActiveSupport::Notifications) && !::ActiveSupport.autoload?(:Notifications)

      event = "#{name}.memscope"
      notifications = ::ActiveSupport::Notifications
      notifications.instrument(event, yield) if notifications.notifier.listening?(event)
    rescue StandardError, ScriptError => e
      $stderr.write("memscope: a subscriber to #{event} failed: #{e.message} (#{e.class})\n") # also under -W0
    end
  end
end
