# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/exporting"

# The file that a program requires. Of what it exports, see test/setup/open_telemetry_test.rb.
class RequireOpenTelemetryTest < MemscopeTest
  include Exporting

  def test_it_loads_what_it_needs = assert_loads_what_it_needs("memscope/open_telemetry")

  def test_it_says_what_to_add_to_the_gemfile
    assert_says_what_to_add("memscope/open_telemetry", "opentelemetry-metrics-sdk")
  end
end
