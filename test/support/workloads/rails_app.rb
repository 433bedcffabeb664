# frozen_string_literal: true

# A Rails application in one file, booted as in production.

require "logger"
require "rails"
require "action_controller/railtie"
require "action_mailer/railtie"
require "active_job/railtie"

class SmallApplication < Rails::Application
  config.load_defaults 7.2
  config.eager_load = true
  config.secret_key_base = "x" * 64
  config.logger = Logger.new(IO::NULL)
  routes.append { root to: ->(_env) { [200, {}, ["fine"]] } }
end

SmallApplication.initialize!
