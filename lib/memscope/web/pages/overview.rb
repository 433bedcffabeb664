# frozen_string_literal: true

require_relative "history"

module Memscope
  module Web
    module Pages
      # The part of the overview that is shown at once: the processes of the cluster, and the ledger of one of them. The
      # page then fetches OfDiagnosis, which takes longer, and shows that instead.
      #
      # @api private
      class Overview < Page
        include OverTime

        # Leaf rows of free but resident memory.
        FREE = %i[free_slots empty_pages slab_slack page_slack thread_caches dirty muzzy free top
                  retained_resident].freeze
        # The share of the RSS from which a row is shown expanded: OPEN for a top-level row, OPEN_BELOW for any other.
        OPEN = 0.1
        OPEN_BELOW = 0.4
        # Word and shape of each severity.
        SEVERITIES = { critical: %w[Critical ◆], warning: %w[Warning ▲], info: %w[Note ●] }.freeze
        # CSS class and words of each verdict except :problems.
        VERDICTS = { none: ["good", "✓ No problems found"], unknown: ["info", "● No verdict: the RSS is unknown"],
                     garbage: ["info", "● No verdict yet: collect garbage first"],
                     grown: ["info", "● Memory has grown"],
                     incomplete: ["info", "● No problems found, but not all was checked"] }.freeze
        # Headings for the rules without a finding, by outcome.
        OUTCOMES = { clear: "Checked; not found, or too little to report", unknown: "Unknown",
                     inapplicable: "Not applicable" }.freeze
        # Name and effect of each lever.
        LEVERS = {
          gc: ["Collect garbage", "One full GC."],
          compact: ["Compact Ruby's heap", "Moves objects together and frees pages."],
          tcache: ["Flush the thread cache",
                   "Flushes the malloc cache of one thread only, the one that runs this lever, so that Decay and " \
                   "Purge can return the pages of the cached blocks."],
          decay: ["Decay", "Returns the unused pages whose decay time has passed."],
          purge: ["Purge", "Returns all unused pages."],
          trim: ["Trim", "Returns whole pages inside free blocks."],
          collect: ["Collect", "Returns the allocator's unused memory."]
        }.freeze
        private_constant :FREE, :OPEN, :OPEN_BELOW

        # A row with its number and shares on the page.
        Branch = Struct.new(:row, :mark, :owner, :held_bytes, :share, :branches) do
          # @return [Boolean]
          def open? = share >= (mark ? OPEN : OPEN_BELOW)
        end

        # @return [Symbol] the template in views/
        def template = :overview

        # @return [Ledger] a cheap one
        def reading = read(:ledger)

        # @return [String]
        def text
          diagnosis = diagnosed.diagnosis
          [diagnosis.evidence.ledger, diagnosis].map { |one| one.to_s(unicode: true) }.join("\n\n")
        end

        # @return [Boolean] whether the page has the findings and the forecast
        def diagnosed? = false

        # @return [Ledger] the one that the page shows
        def ledger = @ledger ||= reading

        # @return [Memscope::Workers, nil] the master and all workers; nil without a cluster
        def processes = (@readings.fetch(:workers) if calls.cluster?)

        # @return [Array<Peers::Entry>] other processes of this user that listen, such as Sidekiq's
        def peers
          own = Listener.current&.path or return []
          @peers ||= Peers.entries(pids: Peers.beside(own) - processes.map(&:pid))
        end

        # @return [String, nil] why this process knows no other worker, although it belongs to a cluster
        def alone = (processes.reasons[:workers] if calls.workers.one?)

        # @return [Array<Branch>] the visible top-level rows
        def branches
          @branches ||= ledger.rows.select(&:visible?).map { |row| branch(row, View.mark(row.id).to_s, row.id) }
        end

        # @return [Array<Drawing::Part>] the parts of the bar
        def parts
          branches.map { |one| Drawing::Part.new(one.owner, one.mark, [one.row.bytes, 0].max, one.held_bytes) }
        end

        # @return [Integer] a lower bound of what is resident but unused
        def held_bytes = branches.sum(&:held_bytes)

        # @return [Integer] the sum of the rows
        def sum_bytes = ledger.rows.sum(&:bytes)

        private

        def diagnosed = @diagnosed ||= read(:diagnosis_with_forecast)

        def branch(row, mark, owner)
          below = row.children.select(&:visible?).map { |child| branch(child, nil, owner) }
          rss = ledger.rss_bytes
          Branch.new(row, mark, owner, held(row), rss&.positive? ? row.bytes.fdiv(rss) : 0.0, below)
        end

        # The free bytes of a row. Its negative leaves, which stand for bytes that are not resident, are subtracted:
        # those bytes may lie in free memory.
        def held(row)
          leaves = row.each_leaf.select { |leaf| FREE.include?(leaf.id) || leaf.bytes.negative? }
          leaves.sum(&:bytes).clamp(0, [row.bytes, 0].max)
        end
      end

      # The overview, with the ledger as JSON and as text.
      #
      # @api private
      class OfLedger < Overview
        # @return [String]
        def text = reading.to_s(unicode: true)
      end

      # The whole overview: the ledger, the findings and the forecast of the levers, all based on one deep ledger. As
      # JSON and as text, it is the diagnosis.
      #
      # @api private
      class OfDiagnosis < OfLedger
        # @return [Boolean]
        def diagnosed? = true

        # @return [Diagnosis]
        def reading = diagnosed.diagnosis
        alias diagnosis reading

        # @return [Ledger] the one that the diagnosis is based on
        def ledger = diagnosis.evidence.ledger

        # @return [Cgroup]
        def cgroup = diagnosis.evidence.cgroup

        # @return [Purge::Result] of a dry run
        def forecast = diagnosed.forecast

        # @return [Array<Finding>]
        def unhealthy = diagnosis.select(&:unhealthy?)

        # @return [Array(Integer, Integer)] the least and the most bytes that the machine gains by a purge that names no
        #   levers, as far as that is predicted. If gc is among its levers and the garbage is known, its bounds stand
        #   for gc, trim and purge together
        def returnable
          garbage = diagnosis.evidence.garbage if forecast.counted.any? { |lever| lever.name == :gc }
          together = garbage ? Purge::OF_GARBAGE : []
          known = forecast.counted.reject { |lever| together.include?(lever.name) }.filter_map(&:predicted_gain)
          known << garbage.gain if garbage
          [known.sum(&:begin), known.sum(&:end)]
        end

        # @return [Float, nil] for how many milliseconds a full GC is predicted to stop Ruby
        def gc_pause_ms = forecast.levers.find { |lever| lever.name == :gc }&.predicted_pause_ms
      end
    end
  end
end
