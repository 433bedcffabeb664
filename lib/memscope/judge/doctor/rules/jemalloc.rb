# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # A process that has used more CPU time than this, in seconds, has done some work: loading and running the doctor
      # takes a tenth of that time.
      SOME_WORK_SECONDS = 1.0
      KEEP_OTHERS = "#{RESTART}; keep MALLOC_CONF's other options".freeze
      # A remedy against huge pages, and its cost.
      NO_HUGE_PAGES = ["MALLOC_CONF=thp:never", "#{KEEP_OTHERS}; causes more TLB misses"].freeze

      # Why jemalloc's dirty pages stay, the most certain cause first: severity, confidence and reason. What to set is
      # Lint#tuning. Without a background thread, threads return pages only while they allocate or free: a busy process
      # always has some dirty pages.
      DIRTY_CAUSE = lambda do
        now = snapshot.jemalloc.to_h
        before = earlier.snapshot.jemalloc unless incomparable
        purged = now[:dirty_purged] - before[:dirty_purged] if now.any? && before
        threads = now[:background_threads].to_i.positive?
        dirty = lambda do |name, value|
          evidence.arenas.to_a.sum { |arena| arena[name] == value ? arena[:dirty_bytes].to_i : 0 }
        end
        if reaches?(dirty.call(:dirty_decay_ms, -1), FLOOR)
          [:warning, :certain, "with dirty_decay_ms:-1, jemalloc never returns them"]
        elsif environment.forked? && setting(:background_thread) == true && !threads
          [:warning, :certain, "the background threads that return them did not survive the fork"]
        elsif reaches?(dirty.call(:threads, 0), FLOOR) && !threads
          [:warning, :certain, "some are in arenas whose threads have ended, or were left by a fork"]
        elsif !threads && !purged&.positive?
          figure(OF_AN_IDLE_PROCESS, now, before, purged)
        end
      end
      # Likewise, without a background thread and without pages that were returned since the earlier diagnosis.
      OF_AN_IDLE_PROCESS = lambda do |now, before, purged|
        decay = setting(:dirty_decay_ms)
        later = evidence.second_snapshot&.jemalloc
        if purged && decay && seconds * 1000 > decay && before[:pdirty] >= now[:pdirty] / 2
          [:warning, :certain, "none was returned since the earlier diagnosis: the " \
                               "process is idle, and no background thread runs"]
        elsif environment.forked? && later && later[:dirty_npurge] <= now[:dirty_npurge] &&
              environment.cpu_seconds.to_f < SOME_WORK_SECONDS
          [:warning, :likely, "none is being returned: no background thread runs, " \
                              "and the pages are older than the fork or the process " \
                              "is idle"]
        else
          [:info, :likely, "no background thread runs, so pages are returned only " \
                           "while the program's threads allocate or free"]
        end
      end

      rule(:slab_slack, "slab slack", -> { row_bytes(:malloc, :slab_slack) },
           inapplicable: :without_jemalloc, floor: FLOOR, ratio: 0.15) do |bytes|
        used = row_bytes(:malloc, :in_use)
        stuck = evidence.fragmentation&.stuck.to_a.first(3)
        sizes = stuck.map do |one|
          bytes_each = "#{size(one.stuck_bytes)} in #{count(one.size_bytes)}-byte slabs"
          "#{bytes_each}, #{percent(one.utilisation)} used"
        end
        { title: "#{size(bytes)} is stuck in partly used slabs",
          confidence: unjudged ? :likely : :certain,
          why: ["Besides the #{size(used)} in use, #{size(bytes)} is free in " \
                "slabs. A slab serves blocks of one size, so its free memory is " \
                "usable only for that size.",
                *("The largest parts: #{sizes.join('; ')}." if sizes.any?)],
          returns: between_blocks("A slab returns with its last block, and no lever moves blocks."),
          remedy: after_collection(command("report", "--size-classes"),
                                   "shows the sizes; only a restart returns slabs with live blocks") }
      end

      rule(:dirty_pages, "freed pages that jemalloc keeps", -> { dirty_bytes&.end },
           inapplicable: :without_jemalloc, floor: FLOOR, ratio: 0.10) do |bytes|
        severity, confidence, cause = figure(DIRTY_CAUSE)
        next unless severity

        least = dirty_bytes.begin
        unsure = least < 0.9 * bytes # of what is resident
        resident = "; at least #{size(least)} in all is resident" if least.positive?
        { title: "jemalloc keeps #{'up to ' if unsure}#{size(bytes)} of freed pages",
          severity: severity, confidence: confidence, returns: gained(:malloc, ledger.returnable(dirty_bytes)),
          why: ["#{'Up to ' if unsure}#{percent(of_rss(bytes))} of RSS is dirty pages: #{cause}.",
                *("Some were never written to#{resident}." if unsure)],
          remedy: [[command("purge", "purge"), *lint.tuning].join("\n"),
                   "takes about #{milliseconds(bytes / 11_000)} without the GVL; " \
                   "pages that are used again fault back in; each process is tuned " \
                   "by itself"],
          evidence: { least_resident_bytes: least } }
      end

      rule(:muzzy_pages, "pages that the kernel may take back", -> { row_bytes(:malloc, :muzzy) },
           inapplicable: :without_jemalloc, floor: FLOOR, ratio: 0.10) do |bytes|
        { title: "#{size(bytes)} counts as RSS, although the kernel may take it back",
          why: "muzzy_decay_ms is #{setting(:muzzy_decay_ms)}: jemalloc offers " \
               "freed pages to the kernel with MADV_FREE.",
          severity: :info, returns: gained(:malloc, bytes),
          remedy: ["MALLOC_CONF=muzzy_decay_ms:0", "#{KEEP_OTHERS}; causes some more page faults"] }
      end

      rule(:retained_resident, "returned memory that is resident again",
           -> { row_bytes(:malloc, :retained_resident) },
           inapplicable: :without_jemalloc, floor: FLOOR, ratio: 0.10) do |bytes|
        { title: "#{size(bytes)} that jemalloc returned is resident again", confidence: :likely,
          why: "The kernel makes huge pages and fills in up to " \
               "#{environment.thp_gaps} missing pages of the 512 in each " \
               "(transparent huge pages: #{environment.thp_mode}).",
          returns: "jemalloc counts these pages as returned, and does not purge them again.",
          remedy: NO_HUGE_PAGES }
      end
      private_constant :SOME_WORK_SECONDS, :KEEP_OTHERS, :NO_HUGE_PAGES, :DIRTY_CAUSE, :OF_AN_IDLE_PROCESS
    end
  end
end
