# frozen_string_literal: true

require_relative "setup/facade"
require_relative "check/rspec"
