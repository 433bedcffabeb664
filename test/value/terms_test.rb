# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/value/terms"

class TermsTest < MemscopeTest
  def own_path?(*names) = Memscope::Terms.own_path?(names.map { |name| { name: name } })

  def test_what_is_memscopes_own
    assert own_path?("Memscope::History", "Array")
    assert own_path?("vm", "Memscope::Native object samples")
    refute own_path?("vm", "T_ARRAY")
    refute own_path?("LEDGERS", "Array", "Memscope::Ledger")
    refute own_path?("vm")
  end
end
