# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/linted"

# What lint says, as text.
class LintPageTest < MemscopeTest
  include Linted

  def test_text
    given = { dirty_decay: ["MALLOC_CONF", "5", NOT_TAKEN], narenas: %w[MALLOC_CONF 2],
              tcache_max: %w[MALLOC_CONF 4096] }
    reading = jemalloc("dirty_decay:5,narenas:2,tcache_max:4096", given: given, memory_limit_bytes: 512 << 20,
                                                                  options: { narenas: 2, tcache_max: 4096 },
                                                                  variables: { MALLOC_ARENA_MAX: "2" })
    text = reading.to_s

    assert_match(/^ +tcache_max  4,096 \(MALLOC_CONF\)$/, text)
    assert_match(/^  warning: MALLOC_CONF: dirty_decay, given "5": jemalloc did not take it/, text)
    assert_match(/^    paste  unset MALLOC_ARENA_MAX$/, text)
    assert_match(/^    MALLOC_CONF=narenas:2,tcache_max:4096,dirty_decay_ms:1000$/, text)
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 80
    assert_predicate reading.to_s(unicode: false), :ascii_only?
    assert_match(/No problems found in the settings/, jemalloc.to_s)
  end
end
