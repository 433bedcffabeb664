# frozen_string_literal: true

require_relative "memscope/facade"

if defined?(Rails::Railtie)
  require_relative "memscope/railtie" # which listens once the application is configured
elsif ENV.key?("MEMSCOPE_LISTEN")
  Memscope::Listener.boot
end
