# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/small_rails"

# Memscope::RackTags in a real Rails application, and in front of any other Rack application.
class RackTagsTest < MemscopeTest
  RAILS = <<~RUBY
    require "memscope"
    require "action_controller/railtie"
    require "json"
    require "rack/mock"

    class Application < Rails::Application
      config.load_defaults 7.0
      config.eager_load = false
      config.logger = Logger.new(nil)
      config.secret_key_base = "x" * 32
      config.consider_all_requests_local = true
      config.hosts.clear
      config.action_controller.default_protect_from_forgery = false
      config.middleware.use Memscope::RackTags
      routes.append do
        resources :orders, only: %i[show]
        namespace(:admin) { post "orders/:id" => "orders#keep" }
        mount ->(_env) { KEPT << "m" * 50_000; [200, {}, []] } => "/mounted"
      end
    end
    KEPT = []
    class OrdersController < ActionController::Base
      def show = (20.times { KEPT << "x" * 10_000 }; head(:ok))
    end
    module Admin
      class OrdersController < ActionController::Base
        def keep = (40.times { KEPT << "x" * 10_000 }; head(:ok))
      end
    end
    Application.initialize!
    web = Rack::MockRequest.new(Application)
    web.get("/orders/0")
    profile = Memscope.malloc_profile(backend: :imports, rate: 512) do
      statuses = [web.get("/orders/1?x=%ff"), web.get("/orders/2"), web.post("/admin/orders/3"), web.get("/nowhere"),
                  web.get("/mounted/x")].map(&:status)
      puts statuses.inspect
    end
    puts JSON.generate(profile.by(:tag).to_h { |entry| [entry.name, entry.live_bytes] })
  RUBY

  def setup
    super
    skip_under_sanitizer
  end

  def test_rails_actions
    ran = SmallRails.run(RAILS)
    tags = JSON.parse(ran.out.lines.last.to_s)

    assert_equal "[400, 200, 200, 404, 200]", ran.out.lines.first.chomp, ran.err
    assert_operator tags.fetch("Admin::OrdersController#keep"), :>, 350_000
    assert_operator tags.fetch("OrdersController#show"), :>, 150_000
    refute(tags.keys.any? { |name| name.include?("/") }, tags.keys.inspect)
  end

  # Of any length and kind, or none; nothing is tagged without a profile.
  def test_names
    ran = ChildProcess.run(<<~RUBY, requires: %w[memscope json])
      kept = []
      app = Memscope::RackTags.new(->(env) { kept << "k" * 4000; env }) { |env| env["name"] }
      answer = app.call("name" => "before")
      profile = Memscope.malloc_profile(backend: :imports, rate: 512) do
        [nil, "", :orders, 7, "é" * 60].each { |name| 20.times { app.call("name" => name) } }
      end
      puts JSON.generate([answer, *profile.by(:tag).map(&:name)])
    RUBY
    answer, *names = ran.json

    assert_equal({ "name" => "before" }, answer)
    assert_equal ["7", "orders", "é" * 32], names.grep_v(/\A\[/).sort
  end

  def test_a_profile_of_objects_has_tags_too
    tags = child_json(<<~RUBY, requires: %w[memscope json])
      kept = []
      app = Memscope::RackTags.new(->(_env) { kept.concat(Array.new(5_000) { Object.new }) }) { "orders" }
      profile = Memscope.object_profile(budget: 1) { app.call({}) }
      puts JSON.generate(profile.by(:tag).to_h { |entry| [entry.name, [entry.live_objects, entry.error_objects]] })
    RUBY
    objects, error = tags.fetch("orders")

    assert_in_delta 5_000, objects, 4 * error
  end
end
