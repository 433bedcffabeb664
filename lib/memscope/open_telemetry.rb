# frozen_string_literal: true

require_relative "setup/open_telemetry"
