# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profile_cases"

# The parts of a profile.
class ProfileStackTest < MemscopeTest
  include ProfileCases

  def test_an_entry
    entry = shop.by(:line).first

    assert_equal ["Cache#put", "/srv/app/models/cache.rb", 9], [entry.name, entry.path, entry.lineno]
    assert_equal "rb_str_plus (libruby-3.1.so.3.1)", entry.native
    assert_equal({ 0 => 89 * MEBIBYTE, 1 => 30 * MEBIBYTE }, entry.generations)
    assert_equal 238, entry.samples
    assert_in_delta 119 / 129.0, entry.share
    assert_nil entry.allocated_bytes
    assert_equal entry, Memscope::Profile::Entry.from_h(JSON.parse(entry.to_json))
    assert_predicate entry, :frozen?
  end
end
