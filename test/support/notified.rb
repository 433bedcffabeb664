# frozen_string_literal: true

# For tests of the events that subscribers of ActiveSupport::Notifications get.
module Notified
  # The events of that name that the block causes, as payloads.
  def payloads(name, &)
    heard = []
    notified(name, ->(*, payload) { heard << payload }, &)
    heard
  end

  def notified(name, subscriber, &)
    require "active_support"
    ActiveSupport::Notifications.subscribed(subscriber, "#{name}.memscope", &)
  rescue LoadError
    skip "ActiveSupport is not installed"
  end
end
