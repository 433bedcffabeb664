# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/exporting"

# The file that a program requires. Of what it exports, see test/setup/prometheus_collector_test.rb.
class RequirePrometheusCollectorTest < MemscopeTest
  include Exporting

  def test_it_loads_what_it_needs = assert_loads_what_it_needs("memscope/prometheus_collector")

  def test_it_says_what_to_add_to_the_gemfile
    assert_says_what_to_add("memscope/prometheus_collector", "prometheus-client")
  end
end
