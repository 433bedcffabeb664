# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/notified"

class NotificationsTest < MemscopeTest
  include Notified

  Notifications = Memscope::Notifications

  def test_a_subscriber_gets_the_payload
    assert_equal([{ bytes: 1 }], payloads(:purge) { Notifications.tell(:purge) { { bytes: 1 } } })
  end

  def test_nobody_waits_for_a_subscriber
    load_active_support
    go, heard = Array.new(2) { Queue.new }
    ActiveSupport::Notifications.subscribed(->(*) { heard << go.pop }, "purge.memscope") do
      assert_nil(Notifications.tell(:purge) { {} })
      go << :went

      assert_equal :went, heard.pop
    end
  end

  def test_subscribers_that_do_not_return_are_not_more_and_more
    load_active_support
    go = Queue.new
    most = Notifications::MAX_THREADS
    ActiveSupport::Notifications.subscribed(->(*) { go.pop }, "purge.memscope") do
      _out, err = capture_io { (most + 2).times { Notifications.tell(:purge) { {} } } }

      assert_equal 2, err.scan("a subscriber to purge.memscope failed: 16 of them are still running").size
      most.times { go << nil }
      Thread.pass while Thread.list.any? { |thread| thread.name == Notifications::THREAD }
    end
  end

  # The payload of no subscriber is not made.
  def test_without_a_subscriber_nothing_is_made
    notified(:purge, ->(*) {}) { assert_nil(Notifications.tell(:verdict) { flunk }) }
  end

  # Also while ActiveSupport has not loaded its notifications: nobody can have subscribed.
  def test_without_active_support_nothing_is_made_or_loaded
    [[[], false], [["active_support"], true]].each do |requires, bundle|
      before, after = child_json(<<~RUBY, requires: ["json", *requires], bundle: bundle)
        before = $LOADED_FEATURES.size
        Memscope::Notifications.tell(:verdict) { raise Exception }
        puts JSON.generate([before, $LOADED_FEATURES.size])
      RUBY

      assert_equal before, after
    end
  end

  def test_a_subscriber_that_raises_is_reported
    [RuntimeError, NotImplementedError, NoMemoryError].each do |error|
      notified(:verdict, ->(*) { raise error, "no" }) do
        assert_output("", /\Amemscope: a subscriber to verdict.memscope failed: .*no.*\n\z/m) do
          Notifications.tell(:verdict) { {} }
        end
      end
    end
  end
end
