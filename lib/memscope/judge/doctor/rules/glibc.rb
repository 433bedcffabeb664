# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      OF_GLIBC = { inapplicable: :without_glibc, floor: FLOOR }.freeze

      # glibc keeps free memory in the arena that it came from. A trim returns free memory in whole pages, but not the
      # free parts of pages between used blocks.
      rule(:malloc_thp, -> { [unused_bytes, anonymous_huge_bytes].then { |all| all.min if all.all? } },
           inapplicable: -> { without_glibc || (:unasked unless malloc_asks_for_huge_pages?) },
           floor: FLOOR, ratio: 0.10) do |bytes|
        { severity: reaches?(bytes - trimmable_bytes, FLOOR) ? :warning : :info, confidence: :likely }
      end

      rule(:trimmable, -> { trimmable_bytes&.+(kept_by_kernel_bytes) }, **OF_GLIBC, ratio: 0.10) do
        kept = trimmable_bytes < kept_by_kernel_bytes / 16
        own = detail(:malloc, :trimmable_private_bytes)
        # If a server's workers share the pages that a trim would return, trim in the master before it forks.
        shared = (own || trimmable_bytes) < trimmable_bytes / 2
        gain = own ? (own..own) : gained(:malloc, trimmable_bytes)
        most = kept ? 0 : gain.end
        much = reaches?(of_rss(most), 0.45) && reaches?(most, 2 * FLOOR)
        title, *trim = shared ? %i[title_shared remedy_shared cost_shared] : %i[title remedy cost]
        { title: kept ? :title_kept : title, why: [:why, headroom, (:shared if shared)],
          severity: much || reaches?(most, 1.36 * gc_room) ? :warning : :info, returns: kept ? :kept : gain,
          remedy: (trim unless kept),
          figures: { kept_reason: ledger.kept_reason, time: milliseconds(row_bytes(:malloc) / 4000) } }
      end

      rule(:glibc_arenas, -> { unreturnable_bytes(:arenas) }, **OF_GLIBC, ratio: 0.10) do |bytes|
        arenas = detail(:malloc, :arenas, :arenas) || 0
        all = row_bytes(:malloc, :arenas)
        next unless arenas > 2 && reaches?(bytes, 0.25 * all)

        { confidence: :likely, returns: between_blocks(:parts_of_pages), remedy: after_collection(:glibc_arenas),
          figures: { arenas: arenas, free_share: bytes.fdiv(all), arenas_bytes: all },
          evidence: { arenas: arenas, arenas_bytes: all, threads: threads } }
      end

      rule(:glibc_holes, -> { unreturnable_bytes(:main_heap) }, **OF_GLIBC, floor: 2 * FLOOR, ratio: 0.30) do
        { title: unjudged ? :title_unjudged : :title, confidence: :likely,
          returns: between_blocks(:parts_of_pages), remedy: after_collection(:glibc_holes) }
      end
    end
  end
end
