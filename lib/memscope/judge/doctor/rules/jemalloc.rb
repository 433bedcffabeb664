# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      OF_JEMALLOC = { inapplicable: :without_jemalloc, floor: FLOOR }.freeze
      # A process that has used more CPU time than this, in seconds, has done some work: loading and running the doctor
      # takes a tenth of that time.
      SOME_WORK_SECONDS = 1.0
      # Why jemalloc's dirty pages stay, in order of certainty: severity, confidence and reason. Lint#tuning has the
      # settings. Without a background thread, threads return pages only while they allocate or free: a busy process
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
          %i[warning certain never_returned]
        elsif environment.forked? && setting(:background_thread) == true && !threads
          %i[warning certain lost_threads]
        elsif reaches?(dirty.call(:threads, 0), FLOOR) && !threads
          %i[warning certain left_arenas]
        elsif !threads && !purged&.positive?
          figure(OF_AN_IDLE_PROCESS, now, before, purged)
        end
      end
      # Likewise, without a background thread and without pages that were returned since the earlier diagnosis.
      OF_AN_IDLE_PROCESS = lambda do |now, before, purged|
        decay = setting(:dirty_decay_ms)
        later = evidence.second_snapshot&.jemalloc
        if purged && decay && seconds * 1000 > decay && before[:pdirty] >= now[:pdirty] / 2
          %i[warning certain idle_since]
        elsif environment.forked? && later && later[:dirty_npurge] <= now[:dirty_npurge] &&
              environment.cpu_seconds.to_f < SOME_WORK_SECONDS
          %i[warning likely idle_now]
        else
          %i[info likely no_thread]
        end
      end

      rule(:slab_slack, -> { row_bytes(:malloc, :slab_slack) }, **OF_JEMALLOC, ratio: 0.15) do
        parts = evidence.fragmentation&.stuck.to_a.first(3).map do |one|
          text(:part, of: :slab_slack, stuck_bytes: one.stuck_bytes, block: one.size_bytes,
                      used: Rules.percent(one.utilisation))
        end
        { confidence: unjudged ? :likely : :certain, why: [:why, (:largest if parts.any?)],
          returns: between_blocks(:whole_slabs), remedy: after_collection(:slab_slack),
          figures: { in_use_bytes: row_bytes(:malloc, :in_use), parts: parts.join("; ") } }
      end

      rule(:dirty_pages, -> { dirty_bytes&.end }, **OF_JEMALLOC, ratio: 0.10) do |bytes|
        severity, confidence, cause = figure(DIRTY_CAUSE)
        next unless severity

        least = dirty_bytes.begin
        unsure = least < 0.9 * bytes # of what is resident
        unwritten = least.positive? ? :unwritten_but : :unwritten if unsure
        { title: unsure ? :title_unsure : :title, why: [unsure ? :why_unsure : :why, unwritten],
          severity: severity, confidence: confidence, returns: gained(:malloc, ledger.returnable(dirty_bytes)),
          remedy: [[:remedy, *lint.tuning], :cost],
          figures: { cause: text(cause, of: :dirty_pages), least_bytes: least, time: milliseconds(bytes / 11_000) },
          evidence: { least_resident_bytes: least } }
      end

      rule(:muzzy_pages, -> { row_bytes(:malloc, :muzzy) }, **OF_JEMALLOC, ratio: 0.10) do |bytes|
        { severity: :info, returns: gained(:malloc, bytes), figures: { decay: setting(:muzzy_decay_ms).to_s } }
      end

      rule(:retained_resident, -> { row_bytes(:malloc, :retained_resident) }, **OF_JEMALLOC, ratio: 0.10) do
        { confidence: :likely, figures: { gaps: environment.thp_gaps.to_s, mode: environment.thp_mode } }
      end
    end
  end
end
