# frozen_string_literal: true

# The source of a small Rails application with memscope, for a script that initializes it: `App.initialize!`.
module SmallRails
  # @param eager_load [Boolean]
  # @param logs [Boolean] whether it prints its log, as "INFO text"
  # @return [String] Ruby
  def self.source(eager_load: true, logs: false)
    logger = logs ? '$stdout, formatter: ->(severity, _, _, text) { [severity, " ", text, 10.chr].join }' : "nil"
    <<~RUBY
      require "logger"
      require "rails"
      require "action_controller/railtie"
      require "memscope"
      class App < Rails::Application
        config.load_defaults 7.2
        config.eager_load = #{eager_load}
        config.secret_key_base = "x" * 64
        config.logger = Logger.new(#{logger})
      end
    RUBY
  end
end
