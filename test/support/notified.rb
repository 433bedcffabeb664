# frozen_string_literal: true

# For tests of the events that subscribers of ActiveSupport::Notifications get.
module Notified
  # The events of that name that the block causes, as payloads.
  def payloads(name, &)
    heard = []
    notified(name, ->(*, payload) { heard << payload }, &)
    heard
  end

  # Subscribers run in the thread of the test.
  def notified(name, subscriber, &)
    background = Memscope::Forks.method(:background)
    at_once = ->(thread, &work) { thread == "memscope event" ? work.call : background.call(thread, &work) }
    load_active_support
    Memscope::Forks.define_singleton_method(:background, &at_once)
    ActiveSupport::Notifications.subscribed(subscriber, "#{name}.memscope", &)
  ensure
    Memscope::Forks.define_singleton_method(:background, background)
  end

  def load_active_support
    require "active_support"
  rescue LoadError
    skip "ActiveSupport is not installed"
  end
end
