# frozen_string_literal: true

# If the `memscope` command that started this program has loaded its own copy of memscope, that copy stays the only one.
loaded = defined?(Memscope.ledger) && Memscope.method(:ledger).source_location.first
return if loaded && File.realpath(loaded) != File.join(__dir__, "memscope/setup/facade.rb")

require_relative "memscope/setup/facade"

if defined?(Rails::Railtie)
  require_relative "memscope/setup/railtie" # which listens and profiles once the application is configured
else
  Memscope::Listener.boot if ENV.key?("MEMSCOPE_LISTEN")
  if ENV.key?("MEMSCOPE_OBJECTS_PROFILE")
    Memscope::ObjectProfile.boot { Memscope::Configuration.so_far.objects_profile }
  end
  Memscope::History.boot { Memscope::Configuration.so_far.history } if ENV.key?("MEMSCOPE_HISTORY")
end
