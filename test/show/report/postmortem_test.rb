# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/black_boxes"

class PostmortemPageTest < MemscopeTest
  include BlackBoxes

  TEXT = <<~TEXT
    memscope 0.1.0 · ruby 3.1.2 · puma worker 2 · pid 4194000

      Likely killed by the kernel for lack of memory: at the last sample, 2.0 MiB
        of its container's limit of 512.0 MiB was left. The count of OOM kills that
        would prove it is gone with the container.
      /srv/shop puma worker, release 4f2c on web-1: from YYYY-MM-DD hh:mm:ss to
        YYYY-MM-DD hh:mm:ss UTC (119 minutes).
      At the last sample, RSS was 480.0 MiB. The working set was 510.0 MiB of the
        container's limit of 512.0 MiB: 2.0 MiB was left.

        MiB  +last hour  +in all
      783.5           –        –  malloc (glibc)
       40.5           –        –  Ruby heap
        4.2           –        –  Ruby internals
        2.9           –        –  files
        0.0           –        –  unattributed
      831.1           –        –  = RSS at YYYY-MM-DD hh:mm:ss UTC

                 running at the last sample
      4 seconds  orders#index

        MiB  live malloc memory by line
      130.0  app/models/order.rb:12 in Order#total

       MiB  objects  retainers at YYYY-MM-DD hh:mm:ss UTC
      12.0    4,000  Hash
                       (vm)
                       Hash at app.rb:3

      MiB  objects  classes at YYYY-MM-DD hh:mm:ss UTC
      9.0    4,000  Order

      critical: Leak of native memory

      next:
        memscope doctor --pid N --gc --json --output before.json # a minute later: --gc --since before.json

      from /boxes/0.box
  TEXT

  def test_a_death
    death = postmortem(body(**slots))

    assert_equal TEXT, death.to_s(unicode: true).gsub(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d/, "YYYY-MM-DD hh:mm:ss")
    assert_predicate death.to_s(unicode: false), :ascii_only?
  end

  def test_what_is_missing
    text = postmortem.to_s

    assert_includes text, "  lines: not recorded: no profile had run for ten"
    refute_match(/MiB  |running at/, text)
  end

  def test_what_cannot_be_said
    early = Histories.judge(0.2) { {} }
    text = postmortem(body(verdict: early.to_h, lines: { at: NOW, malloc: nil, objects: [] }, limit: nil)).to_s

    ["RSS was 480.0 MiB. No limit of", "too early for a verdict", "too few samples to name a line"].each do |part|
      assert_includes text, part
    end
  end

  def test_growth
    grown = { id: :malloc, bytes: 1, hour_bytes: 5 * MEBIBYTE, life_bytes: 7 * MEBIBYTE }
    death = Memscope::Postmortem.from_h({ **postmortem(body(**slots)).to_h, growth: [grown, { **grown, id: :files }],
                                                                            growth_since: "2026-11-30T08:02:00.000Z" })

    assert_match(/\+last hour  \+since 11-30 08:02\n.* \+5\.0 +\+7\.0  malloc/, death.to_s)
    assert_match(/ –  Ruby heap\n.*\+10\.0 +\+14\.0  = RSS/m, death.to_s(unicode: true))
  end
end
