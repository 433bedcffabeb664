# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/process/malloc_variables"

class MallocVariablesTest < MemscopeTest
  MallocVariables = Memscope.const_get(:MallocVariables)

  def test_values_are_those_that_mimalloc_takes
    { "" => 1, "yes" => 1, "On" => 1, "no" => 0, "250" => 250, " -1" => -1, "4KiB" => "4KiB", "2g" => "2g",
      "few" => nil, "4X" => nil, "\xFF" => nil }.each do |given, value|
      setting = settings(:mimalloc, MIMALLOC_PAGE_RESET: given).first

      assert_equal ["page_reset", value, given], setting.values_at(:name, :value, :given), given.inspect
      assert_equal value.nil?, !setting[:ignored].nil?
      assert_equal value.nil? ? "default" : "MIMALLOC_PAGE_RESET", setting[:source]
    end
  end

  def test_each_allocator_has_variables_of_its_own
    variables = { MIMALLOC_A: "1", mimalloc_b: "2", TCMALLOC_C: "few", MALLOC_CONF: "d:1", MIMALLOC_: "3" }

    assert_equal [%w[a MIMALLOC_A], %w[b mimalloc_b]], names_and_sources(:mimalloc, variables)
    assert_equal [%w[c TCMALLOC_C]], names_and_sources(:tcmalloc, variables)
    assert_equal "few", settings(:tcmalloc, **variables).first[:value]
  end

  def test_variables_that_allocators_ignore_set_nothing
    assert_empty MallocVariables.settings(:mimalloc, variables: { MIMALLOC_A: "1" }, secure: true)
  end

  private

  def names_and_sources(allocator, variables)
    settings(allocator, **variables).map { |setting| setting.values_at(:name, :source) }
  end

  def settings(allocator, **variables) = MallocVariables.settings(allocator, variables: variables, secure: false)
end
