# frozen_string_literal: true

require_relative "../../test_helper"
require "erb"
require "json"
require_relative "../../support/metrics_settings"

class MetricsDefinitionsTest < MemscopeTest
  include MetricsSettings

  DEFINITIONS = Memscope::Metrics::DEFINITIONS

  def test_names_and_units
    names = DEFINITIONS.map(&:name)

    assert_equal names.uniq, names
    DEFINITIONS.each do |definition|
      assert_match(/\Amemscope_[a-z][a-z0-9_]*\z/, definition.name)
      assert_equal definition.type == :counter, definition.name.end_with?("_total"), definition.name
      refute_match(/_(kb|mb|ms|us|count|sum|bucket|percent|hour)\b/, definition.name)
      refute_match(/\.\z/, definition.help)
      assert_empty definition.help.scan(/\w+/) & names.map { |name| name.delete_prefix("memscope_") }.grep(/_/)
      assert_operator definition.labels, :frozen?
    end
    assert_equal %i[action allocator arena class event executed kind pages reading row size stall tag version
                    worker],
                 DEFINITIONS.flat_map(&:label_names).uniq.sort
  end

  def test_families_are_values
    families = configured { Memscope::Metrics.families }

    families.each do |family|
      assert_predicate family, :frozen?
      assert_equal family, Memscope::Metrics::Family.from_h(JSON.parse(family.to_json))
      assert_equal family.samples.map(&:labels).uniq.size, family.samples.size
      family.samples.each { |sample| assert_kind_of Numeric, sample.value, family.name }
    end
  end

  def test_the_documentation_is_up_to_date
    directory = File.join(ChildProcess::ROOT, "docs")
    template = ERB.new(File.read(File.join(directory, "metrics.md.erb")), trim_mode: "-")

    assert_equal template.result_with_hash(definitions: DEFINITIONS), File.read(File.join(directory, "metrics.md")),
                 "rake docs:metrics writes it"
    DEFINITIONS.each { |definition| assert_includes File.read(File.join(directory, "metrics.md")), definition.name }
  end
end
