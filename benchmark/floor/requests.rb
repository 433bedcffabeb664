# frozen_string_literal: true

# A Rails application in production that answers requests in its own process, without a server: only what Rails and the
# application do is measured. With MEMSCOPE=1 everything of memscope is loaded, mounted and listening, and idle.

require "bundler/setup" if ENV["BUNDLE_GEMFILE"]
require "logger"
require "rails"
require "action_controller/railtie"
require "memscope" if ENV["MEMSCOPE"]
require ENV["INSTEAD"] if ENV["INSTEAD"]
require_relative "answers"

class App < Rails::Application
  config.load_defaults 7.2
  config.eager_load = true
  config.secret_key_base = "x" * 64
  config.logger = Logger.new(File::NULL)
  routes.append do
    mount(Memscope::Web => "/memscope") if ENV["MEMSCOPE"] && Memscope.const_defined?(:Web)
    get "/orders", to: "orders#index"
  end
end

OrdersController = Class.new(ActionController::Base) do
  def index
    lines = ->(id) { Array.new(5) { |line| { line: line, price: id * line } } }
    render json: Array.new(40) { |id| { id: id, name: "order #{id}", lines: lines.call(id) } }
  end
end

ENV["RAILS_ENV"] = ENV["RACK_ENV"] = "production"
App.initialize!
Memscope.listen if ENV["MEMSCOPE"] && Memscope.respond_to?(:listen)

request = Rack::MockRequest.new(App)
answer { raise unless request.get("/orders", "HTTP_HOST" => "localhost").status == 200 }
