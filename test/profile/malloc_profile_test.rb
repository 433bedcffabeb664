# frozen_string_literal: true

require_relative "../test_helper"

class MallocProfileEndTest < MemscopeTest
  # A page shows an ended profile for as long as no other one begins.
  both_allocators "memory is as of the end of a profile" do |preload|
    skip_under_sanitizer
    ended, later = child_json(<<~RUBY, preload: preload, requires: %w[json memscope])
      Memscope::MallocProfile.start(backend: :imports)
      kept = Array.new(100) { "k" * 100_000 }
      ended = Memscope::MallocProfile.stop
      late = Array.new(300) { "l" * 100_000 }
      puts JSON.generate([ended, Memscope::MallocProfile.snapshot].map(&:to_h))
    RUBY
    grown = %w[allocator_grown_bytes rss_grown_bytes]

    assert_operator ended["allocator_grown_bytes"], :>=, 9_000_000
    assert_equal ended.values_at(*grown), later.values_at(*grown)
  end
end
