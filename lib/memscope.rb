# frozen_string_literal: true

require_relative "memscope/facade"
require_relative "memscope/railtie" if defined?(Rails::Railtie)
