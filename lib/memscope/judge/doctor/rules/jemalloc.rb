# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Why jemalloc's dirty pages stay, the most certain cause first: condition, severity, confidence and reason. What
      # to set is Lint#tuning. Without a background thread, threads return pages only while they allocate or free: a
      # busy process always has some dirty pages.
      DIRTY_CAUSES = [
        [->(f) { f.reaches?(f.undecaying_dirty_bytes, FLOOR) }, :warning, :certain,
         "with dirty_decay_ms:-1, jemalloc never returns them"],
        [:background_threads_lost?, :warning, :certain,
         "the background threads that return them did not survive the fork"],
        [->(f) { f.reaches?(f.stranded_dirty_bytes, FLOOR) && !f.background_threads? }, :warning, :certain,
         "some are in arenas whose threads have ended or did not survive a fork, so that no thread returns them"],
        [->(f) { f.background_threads? || f.purged_since_earlier? }, nil],
        [:decay_overdue?, :warning, :certain,
         "no page was returned since the earlier diagnosis, because no background thread runs and the process is idle"],
        [:idle_since_fork?, :warning, :likely,
         "no page is being returned, because no background thread runs, and the pages are older than the fork or the " \
         "process is idle"],
        [->(_) { true }, :info, :likely,
         "no jemalloc background thread runs, so pages are returned only while the program's threads allocate or " \
         "free; an idle process keeps them"]
      ].freeze

      DIRTY_CAUSE = ->(f) { DIRTY_CAUSES.find { |applies, *| applies.to_proc.call(f) }.drop(1) }

      # Whether less than nine tenths of the dirty pages is known to be resident.
      UNSURE_DIRTY = ->(f) { f.dirty_bytes.begin < 0.9 * f.dirty_bytes.end }

      # The block sizes in whose slabs most memory is stuck, for people.
      STUCK = lambda do |f|
        sizes = f.stuck.map do |stuck|
          "#{size(stuck.stuck_bytes)} in #{count(stuck.size_bytes)}-byte slabs, #{percent(stuck.utilisation)} used"
        end
        sizes.empty? ? "" : ". The largest parts: #{sizes.join('; ')}"
      end

      JEMALLOC_RULES = table(
        { inapplicable: JEMALLOC },
        slab_slack: {
          subject: "slab slack",
          affected: ->(f) { f.bytes(:malloc, :slab_slack) },
          floor: FLOOR, ratio: 0.15,
          recoverable: lambda do |f|
            between_blocks(f, "jemalloc returns a slab only when its last block is freed, and no lever moves blocks.")
          end,
          confidence: ->(f) { unjudged(f) ? :likely : :certain },
          title: ->(_, bytes) { "#{size(bytes)} is stuck in partly used slabs" },
          explanation: lambda do |f, bytes|
            used = f.bytes(:malloc, :in_use)
            "Besides the #{size(used)} in use, #{size(bytes)} (#{percent(bytes.fdiv(used + bytes))} of both " \
              "together) is free in slabs. A slab serves blocks of one size, so its free memory is usable only for " \
              "that size#{STUCK.call(f)}."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, slab_slack_bytes: f.bytes(:malloc, :slab_slack),
              in_use_bytes: f.bytes(:malloc, :in_use), stuck: f.stuck.map(&:to_h) }
          end,
          remedy: lambda do |f|
            after_collection(f, "memscope report --pid #{f.ledger.pid} --size-classes",
                             "shows the sizes; only a restart returns slabs that live blocks keep, and another peak " \
                             "like the last one makes them resident again")
          end
        },
        dirty_pages: {
          subject: "freed pages that jemalloc keeps",
          affected: ->(f) { f.dirty_bytes&.end },
          present: ->(f) { DIRTY_CAUSE.call(f).first },
          floor: FLOOR, ratio: 0.10,
          recoverable: ->(f) { f.gained(:malloc, f.dirty_bytes && f.ledger.returnable(f.dirty_bytes)) },
          severity: ->(f) { DIRTY_CAUSE.call(f).first },
          confidence: ->(f) { DIRTY_CAUSE.call(f)[1] },
          title: ->(f, bytes) { "jemalloc keeps #{'up to ' if UNSURE_DIRTY.call(f)}#{size(bytes)} of freed pages" },
          explanation: lambda do |f, bytes|
            unsure = UNSURE_DIRTY.call(f)
            least = f.dirty_bytes.begin
            resident = "; at least #{size(least)} in all is resident" if least.positive?
            "#{'Up to ' if unsure}#{percent(f.of_rss(bytes))} of RSS is dirty pages: #{DIRTY_CAUSE.call(f)[2]}." +
              (unsure ? " Some were never written to#{resident}." : "")
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, dirty_bytes: f.bytes(:malloc, :dirty), least_resident_bytes: f.dirty_bytes.begin,
              dirty_decay_ms: f.setting(:dirty_decay_ms),
              background_thread: f.setting(:background_thread), background_threads: f.jemalloc(:background_threads),
              without_threads_bytes: f.stranded_dirty_bytes, purging: f.purging_now?, forked: f.environment.forked?,
              cpu_seconds: f.environment.cpu_seconds, threads: f.threads }
          end,
          remedy: lambda do |f, bytes|
            [[purge(f, :purge), *f.lint.tuning].join("\n"),
             "takes about #{milliseconds(bytes / 11_000)} without the GVL; pages that are used again fault back in; " \
             "each process is tuned by itself"]
          end
        },
        muzzy_pages: {
          subject: "pages that the kernel may take back",
          affected: ->(f) { f.bytes(:malloc, :muzzy) },
          floor: FLOOR, ratio: 0.10, severity: :info,
          recoverable: ->(f) { f.gained(:malloc, f.bytes(:malloc, :muzzy)) },
          title: ->(_, bytes) { "#{size(bytes)} counts as RSS, although the kernel may take it back" },
          explanation: lambda do |f|
            "muzzy_decay_ms is #{f.setting(:muzzy_decay_ms)}: jemalloc offers freed pages to the kernel with MADV_FREE."
          end,
          evidence: lambda do |f|
            { muzzy_bytes: f.bytes(:malloc, :muzzy), lazy_free_bytes: f.process_memory.lazy_free_bytes,
              muzzy_decay_ms: f.setting(:muzzy_decay_ms) }
          end,
          remedy: ["MALLOC_CONF=muzzy_decay_ms:0",
                   "requires a restart; keep MALLOC_CONF's other options; causes some more page faults"]
        },
        retained_resident: {
          subject: "returned memory that is resident again",
          affected: ->(f) { f.bytes(:malloc, :retained_resident) },
          floor: FLOOR, ratio: 0.10, confidence: :likely,
          recoverable: "jemalloc counts these pages as returned, and does not purge them again.",
          title: ->(_, bytes) { "#{size(bytes)} that jemalloc returned is resident again" },
          explanation: lambda do |f|
            "The kernel makes huge pages and fills in up to #{f.environment.thp_gaps} missing pages of the 512 in " \
              "each (transparent huge pages: #{f.environment.thp_mode}). " \
              "#{size(f.process_memory.anonymous_huge_bytes || 0)} is in huge pages."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, retained_resident_bytes: f.bytes(:malloc, :retained_resident),
              retained_bytes: f.jemalloc(:retained_bytes), thp: f.setting(:thp), **HUGE.call(f) }
          end,
          remedy: NO_HUGE_PAGES
        }
      )
      private_constant :DIRTY_CAUSES, :DIRTY_CAUSE, :UNSURE_DIRTY, :STUCK, :JEMALLOC_RULES
    end
  end
end
