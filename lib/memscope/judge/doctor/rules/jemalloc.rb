# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # A process that has used more CPU time than this, in seconds, has done some work: loading and running the doctor
      # takes a tenth of that time.
      SOME_WORK_SECONDS = 1.0
      # A remedy against huge pages, and its cost.
      NO_HUGE_PAGES = ["MALLOC_CONF=thp:never",
                       "#{RESTART}; keep MALLOC_CONF's other options; causes more TLB misses"].freeze

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
          [:warning, :certain, "some are in arenas whose threads have ended or did not survive a " \
                               "fork, so that no thread returns them"]
        elsif !threads && !purged&.positive?
          figure(OF_AN_IDLE_PROCESS, now, before, purged)
        end
      end
      # Likewise, without a background thread and without pages that were returned since the earlier diagnosis.
      OF_AN_IDLE_PROCESS = lambda do |now, before, purged|
        decay = setting(:dirty_decay_ms)
        later = evidence.second_snapshot&.jemalloc
        if purged && decay && seconds * 1000 > decay && before[:pdirty] >= now[:pdirty] / 2
          [:warning, :certain, "no page was returned since the earlier diagnosis, because no " \
                               "background thread runs and the process is idle"]
        elsif environment.forked? && later && later[:dirty_npurge] <= now[:dirty_npurge] &&
              environment.cpu_seconds.to_f < SOME_WORK_SECONDS
          [:warning, :likely, "no page is being returned, because no background thread runs, and the " \
                              "pages are older than the fork or the process is idle"]
        else
          [:info, :likely, "no jemalloc background thread runs, so pages are returned only while the " \
                           "program's threads allocate or free; an idle process keeps them"]
        end
      end

      JEMALLOC = [
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
            why: ["Besides the #{size(used)} in use, #{size(bytes)} is free in slabs. A slab serves " \
                  "blocks of one size, so its free memory is usable only for that size.",
                  *("The largest parts: #{sizes.join('; ')}." if sizes.any?)],
            returns: between_blocks("jemalloc returns a slab only when its last block is freed, and " \
                                    "no lever moves blocks."),
            remedy: after_collection(command("report", "--size-classes"),
                                     "shows the sizes; only a restart returns slabs that live blocks " \
                                     "keep, and another peak like the last one makes them resident " \
                                     "again"),
            evidence: { slab_slack_bytes: bytes, in_use_bytes: used, stuck: stuck.map(&:to_h) } }
        end,
        rule(:dirty_pages, "freed pages that jemalloc keeps", -> { dirty_bytes&.end },
             inapplicable: :without_jemalloc, floor: FLOOR, ratio: 0.10) do |bytes|
          severity, confidence, cause = figure(DIRTY_CAUSE)
          next unless severity

          least = dirty_bytes.begin
          unsure = least < 0.9 * bytes # of what is resident
          resident = "; at least #{size(least)} in all is resident" if least.positive?
          { title: "jemalloc keeps #{'up to ' if unsure}#{size(bytes)} of freed " \
                   "pages", severity: severity,
            confidence: confidence, returns: gained(:malloc, ledger.returnable(dirty_bytes)),
            why: ["#{'Up to ' if unsure}#{percent(of_rss(bytes))} of RSS is dirty pages: #{cause}.",
                  *("Some were never written to#{resident}." if unsure)],
            remedy: [[command("purge", "purge"), *lint.tuning].join("\n"),
                     "takes about #{milliseconds(bytes / 11_000)} without the GVL; pages that are " \
                     "used again fault back in; each process is tuned by itself"],
            evidence: { least_resident_bytes: least, dirty_decay_ms: setting(:dirty_decay_ms),
                        forked: environment.forked? } }
        end,
        rule(:muzzy_pages, "pages that the kernel may take back", -> { row_bytes(:malloc, :muzzy) },
             inapplicable: :without_jemalloc, floor: FLOOR, ratio: 0.10) do |bytes|
          { title: "#{size(bytes)} counts as RSS, although the kernel may take it " \
                   "back", severity: :info,
            why: "muzzy_decay_ms is #{setting(:muzzy_decay_ms)}: jemalloc offers freed pages to the " \
                 "kernel with MADV_FREE.",
            returns: gained(:malloc, bytes),
            remedy: ["MALLOC_CONF=muzzy_decay_ms:0",
                     "#{RESTART}; keep MALLOC_CONF's other options; causes some more page faults"],
            evidence: { lazy_free_bytes: process_memory.lazy_free_bytes } }
        end,
        rule(:retained_resident, "returned memory that is resident again",
             -> { row_bytes(:malloc, :retained_resident) },
             inapplicable: :without_jemalloc, floor: FLOOR, ratio: 0.10) do |bytes|
          { title: "#{size(bytes)} that jemalloc returned is resident again", confidence: :likely,
            why: "The kernel makes huge pages and fills in up to #{environment.thp_gaps} missing " \
                 "pages of the 512 in each (transparent huge pages: #{environment.thp_mode}). " \
                 "#{size(anonymous_huge_bytes || 0)} is in huge pages.",
            returns: "jemalloc counts these pages as returned, and does not purge them again.",
            remedy: NO_HUGE_PAGES, evidence: { anonymous_huge_bytes: anonymous_huge_bytes } }
        end,
        rule(:crashing_profiler, "a jemalloc whose profiling " \
                                 "crashes", inapplicable: :without_jemalloc) do
          next unless allocator.version&.start_with?("5.3.0") && setting(:prof) == true

          { title: "jemalloc 5.3.0 can crash when a thread ends while prof:true is set",
            why: "This is jemalloc's issue 2681; prof_active:false does not prevent it.",
            returns: "This finding is about a crash.",
            remedy: ["MALLOC_CONF=prof:false",
                     "#{RESTART}; keep MALLOC_CONF's other options; disables profiles"],
            evidence: { version: allocator.version, threads: threads } }
        end
      ].freeze
      private_constant :SOME_WORK_SECONDS, :NO_HUGE_PAGES, :DIRTY_CAUSE, :OF_AN_IDLE_PROCESS, :JEMALLOC
    end
  end
end
