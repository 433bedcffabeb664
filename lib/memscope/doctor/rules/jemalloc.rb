# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      ENABLE = "Memscope.tune(background_thread: true) # in each worker"

      # Why jemalloc's dirty pages stay, the surest first: when, severity, confidence, why, and what to set. Without a
      # background thread a thread gives pages back while it allocates: some are always there in a busy process.
      STAYING = [
        [->(f) { f.undecaying_dirty_bytes >= FLOOR }, :warning, :certain,
         "dirty_decay_ms:-1 forbids to give them back", "Memscope.tune(dirty_decay_ms: 5_000)"],
        [:background_threads_lost?, :warning, :certain,
         "the background threads that give them back do not run since this process was forked", ENABLE],
        [->(f) { f.stranded_dirty_bytes >= FLOOR && !f.background_threads? }, :warning, :certain,
         "some are in arenas whose threads have ended or were left behind by a fork: nobody gives them back",
         ENABLE],
        [->(f) { f.background_threads? || f.purged_since_earlier? }, nil],
        [:decay_overdue?, :warning, :certain,
         "none was given back since the earlier diagnosis: no background thread runs, and the process is idle", ENABLE],
        [:idle_since_fork?, :warning, :likely,
         "they were there at the fork, or the process is idle; no background thread runs, and none is given back",
         ENABLE],
        [->(_) { true }, :info, :likely,
         "no background thread runs: pages go back while threads allocate, and stay where a process is idle", ENABLE]
      ].freeze

      STAYS = ->(f) { STAYING.find { |applies, *| applies.to_proc.call(f) }.drop(1) }

      private_constant :ENABLE, :STAYING, :STAYS

      # The sizes that most is stuck in, for people.
      STUCK = lambda do |f|
        sizes = f.stuck.map do |stuck|
          "#{size(stuck.stuck_bytes)} in #{count(stuck.size_bytes)}-byte slabs, #{percent(stuck.utilisation)} used"
        end
        sizes.empty? ? "" : ": #{sizes.join('; ')}"
      end
      private_constant :STUCK

      JEMALLOC_RULES = [
        Rule.new(
          id: :slab_slack,
          subject: "slab slack",
          inapplicable: JEMALLOC,
          affected: ->(f) { f.bytes(:malloc, :slab_slack) },
          floor: FLOOR, ratio: 0.15,
          recoverable: "A slab goes back only when the last block in it is freed, and no lever moves blocks.",
          title: ->(_, bytes) { "#{size(bytes)} are stuck in slabs that are partly in use" },
          explanation: lambda do |f, bytes|
            used = f.bytes(:malloc, :in_use)
            "Beside the #{size(used)} in use, #{size(bytes)} are free in slabs, each of one size of block " \
              "(#{percent(bytes.fdiv(used + bytes))} of both). They serve allocations of that size only" \
              "#{STUCK.call(f)}."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, slab_slack_bytes: f.bytes(:malloc, :slab_slack),
              in_use_bytes: f.bytes(:malloc, :in_use), stuck: f.stuck.map(&:to_h) }
          end,
          remedy: "Memscope.size_classes # the sizes; then restart the worker",
          remedy_cost: "a restart; it comes back if the same peak does"
        ),
        Rule.new(
          id: :dirty_pages,
          subject: "freed pages that stay",
          inapplicable: JEMALLOC,
          affected: ->(f) { f.dirty_bytes&.end },
          present: ->(f) { STAYS.call(f).first },
          floor: FLOOR, ratio: 0.10,
          recoverable: :dirty_bytes,
          severity: ->(f) { STAYS.call(f).first },
          confidence: ->(f) { STAYS.call(f)[1] },
          title: ->(_, bytes) { "#{size(bytes)} are freed pages that jemalloc still holds" },
          explanation: lambda do |f, bytes|
            "#{percent(f.of_rss(bytes))} of the RSS are dirty pages: #{STAYS.call(f)[2]}."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, dirty_bytes: f.bytes(:malloc, :dirty), dirty_decay_ms: f.setting(:dirty_decay_ms),
              background_thread: f.setting(:background_thread), background_threads: f.jemalloc(:background_threads),
              without_threads_bytes: f.stranded_dirty_bytes, purging: f.purging_now?, forked: f.environment.forked?,
              cpu_seconds: f.environment.cpu_seconds,
              threads: f.threads }
          end,
          remedy: ->(f) { "Memscope.purge(:purge)\n#{STAYS.call(f)[3]}" },
          remedy_cost: lambda do |_, bytes|
            "about #{milliseconds(bytes / 11_000)} without the GVL; what is used again has to be faulted in"
          end
        ),
        Rule.new(
          id: :muzzy_pages,
          subject: "pages left to the kernel",
          inapplicable: JEMALLOC,
          affected: ->(f) { f.bytes(:malloc, :muzzy) },
          floor: FLOOR, ratio: 0.10,
          recoverable: ->(f) { f.bytes(:malloc, :muzzy) },
          severity: :info,
          title: ->(_, bytes) { "#{size(bytes)} count as RSS although the kernel may take them" },
          explanation: ->(f) { "muzzy_decay_ms is #{f.setting(:muzzy_decay_ms)}: pages are offered with MADV_FREE." },
          evidence: lambda do |f|
            { muzzy_bytes: f.bytes(:malloc, :muzzy), lazy_free_bytes: f.process_memory.lazy_free_bytes,
              muzzy_decay_ms: f.setting(:muzzy_decay_ms) }
          end,
          remedy: "MALLOC_CONF=muzzy_decay_ms:0",
          remedy_cost: "a restart; some more page faults"
        ),
        Rule.new(
          id: :stranded_thread_caches,
          subject: "thread caches stranded by a fork",
          inapplicable: lambda do |f|
            next "jemalloc does not serve malloc" unless f.jemalloc?
            next "the process was not forked" unless f.environment.forked?

            "only an earlier diagnosis of the parent tells" unless f.earlier&.ledger&.pid == f.environment.parent_pid
          end,
          affected: :stranded_cache_bytes,
          floor: MEBIBYTE,
          severity: ->(f) { f.stranded_cache_bytes >= FLOOR ? :warning : :info },
          recoverable: "The threads that could empty these caches are not in this process.",
          title: ->(_, bytes) { "#{size(bytes)} were left in the caches of the parent's threads" },
          explanation: "A fork copies one thread; the others' caches count as allocated for good.",
          evidence: lambda do |f|
            { parent_thread_cache_bytes: f.earlier.jemalloc(:tcache_bytes), parent_threads: f.earlier.threads,
              thread_cache_bytes: f.jemalloc(:tcache_bytes) }
          end,
          remedy: "Memscope.purge(:tcache) # in the parent's threads, before the fork",
          remedy_cost: "the next allocations of those threads are slower"
        ),
        Rule.new(
          id: :retained_resident,
          subject: "memory given back that is resident again",
          inapplicable: JEMALLOC,
          affected: ->(f) { f.bytes(:malloc, :retained_resident) },
          floor: FLOOR, ratio: 0.10,
          recoverable: "jemalloc counts these pages as given back already, and purges none of them again.",
          confidence: :likely,
          title: ->(_, bytes) { "#{size(bytes)} that jemalloc gave back are resident again" },
          explanation: lambda do |f|
            "The kernel fills in pages to make huge ones (transparent huge pages: #{f.environment.thp_mode}; up to " \
              "#{f.environment.thp_gaps} of 512 pages): #{size(f.process_memory.anonymous_huge_bytes || 0)} are huge."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, retained_resident_bytes: f.bytes(:malloc, :retained_resident),
              retained_bytes: f.jemalloc(:retained_bytes), thp: f.setting(:thp), **HUGE.call(f) }
          end,
          remedy: "MALLOC_CONF=thp:never",
          remedy_cost: "a restart; more TLB misses"
        )
      ].freeze
      private_constant :JEMALLOC_RULES
    end
  end
end
