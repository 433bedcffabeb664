# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/profiles"
require "memscope/profile/leaves"

# The frames of a stack that are kept for pprof, whose first table counts by the innermost frame.
class ProfileLeavesTest < MemscopeTest
  RUBY = "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1"

  def trimmed(*frames)
    profile = Profiles.profile(Profiles.whole(frames, [Profiles.stack([*frames.each_index], 1, 0)]))
    profile.frames.values_at(*Memscope::Profile::Leaves.new(profile.frames).trim(profile.stacks.first)).map(&:name)
  end

  def native(name, library = RUBY) = Profiles.native(name, library)

  def test_wrappers_of_malloc_are_dropped_from_the_leaf
    line = Profiles.ruby("Cache#put", "/srv/app/cache.rb", 9)
    wrappers = [native("__libc_malloc", "/lib/x86_64-linux-gnu/libc.so.6"), native("libruby-3.1.so.3.1+0xd8483"),
                native("objspace_xmalloc0"), native("ruby_xmalloc2"), native("rb_gc_impl_malloc"),
                native("je_malloc", "/usr/lib/libjemalloc.so.2")]

    assert_equal %w[rb_str_plus Cache#put], trimmed(*wrappers, native("rb_str_plus"), line)
    assert_equal %w[Cache#put], trimmed(*wrappers, line)
  end

  # A reader looks for these functions.
  def test_functions_of_extensions_stay
    named = native("malloc_wrapper", "/srv/gems/fast-1.0/fast.so")
    stripped = native("fast.so+0x1a2b", "/srv/gems/fast-1.0/fast.so")

    assert_equal %w[malloc_wrapper rb_xmalloc], trimmed(named, native("rb_xmalloc"))
    assert_equal ["fast.so+0x1a2b"], trimmed(native("malloc", "/lib/libc.so.6"), stripped)
  end

  def test_a_stack_of_nothing_else_stays_as_it_is
    assert_equal %w[malloc], trimmed(native("malloc", "/lib/libc.so.6"))
    assert_empty trimmed
  end
end
