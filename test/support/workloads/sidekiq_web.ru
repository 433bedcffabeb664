# frozen_string_literal: true

# Sidekiq's pages with the tab of memscope, as in docs/sidekiq.md.
require "rack/session"
require "sidekiq/web"
require "memscope/sidekiq_web"

use Rack::Session::Cookie, secret: "x" * 64
map("/sidekiq") { run Sidekiq::Web }
