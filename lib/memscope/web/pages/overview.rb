# frozen_string_literal: true

require_relative "../../report"
require_relative "../drawing"
require_relative "../relay"
require_relative "page"

module Memscope
  module Web
    module Pages
      # Where the memory is, what is wrong with that, and what can be done: of one diagnosis and its ledger.
      #
      # @api private
      class Overview < Page
        shows "Overview", :overview

        # Leaves that nothing uses: free, and resident all the same.
        HELD = %i[free_slots empty_pages slab_slack page_slack thread_caches dirty muzzy free top
                  retained_resident].freeze
        # Share of the RSS from which a row is shown with what is below it: one of an owner, and one further down.
        OPEN = 0.1
        OPEN_BELOW = 0.4
        # Severities as words, and as shapes.
        SEVERITIES = { critical: %w[Critical ◆], warning: %w[Warning ▲], info: %w[Note ●] }.freeze
        # What came of the doctor's rules, but for what the findings say.
        OUTCOMES = { clear: "Not there, or too little to matter", unknown: "Could not be told",
                     inapplicable: "Cannot be in this process" }.freeze
        # What each lever does.
        LEVERS = {
          gc: ["Collect garbage", "One full GC. Ruby's threads wait for it."],
          compact: ["Compact Ruby's heap", "Moves objects together and frees pages. Ruby's threads wait, for a " \
                                           "second or more a GB."],
          tcache: ["Flush the thread cache", "Of the thread that answers; it becomes unused pages."],
          decay: ["Decay", "Returns unused pages whose decay time is over."],
          purge: ["Purge", "Returns all unused pages."],
          trim: ["Trim", "Returns whole pages inside of free blocks."],
          collect: ["Collect", "Returns what the allocator holds unused."]
        }.freeze
        private_constant :HELD, :OPEN, :OPEN_BELOW

        # A row, and what the page says of it.
        Branch = Struct.new(:row, :mark, :owner, :held_bytes, :share, :branches) do
          # @return [Boolean]
          def open? = share >= (mark ? OPEN : OPEN_BELOW)
        end

        # @return [Ledger] the cheap one, for whoever asks often
        def reading = read(:ledger)

        # @return [String]
        def text
          [ledger, diagnosis].map { |reading| Memscope::Report.render(reading, unicode: true) }.join("\n\n")
        end

        # @return [Diagnosis]
        def diagnosis = @diagnosis ||= read(:diagnosis)

        # @return [Ledger] that of the diagnosis
        def ledger = diagnosis.evidence.ledger

        # @return [Cgroup]
        def cgroup = diagnosis.evidence.cgroup

        # @return [Purge::Result] of a dry run
        def forecast = @forecast ||= read(:forecast)

        # @return [Array<Worker>] those that a purge reaches unless one is chosen; none where there is no cluster
        def workers = @workers ||= Relay.workers { read(:workers) }

        # @return [String, nil] why no other worker is known, where there is a cluster
        def alone = (read(:workers).reasons[:workers] if workers.one?)

        # @return [Integer, nil] the number of the worker that this page is of
        def index = workers.find { |worker| worker.pid == ledger.pid }&.index

        # @return [Integer, nil] live slots and what objects hold through malloc
        def ruby_bytes
          live = ledger.each_leaf.find { |row| row.id == :live_slots }&.bytes
          live && (live + (ledger.held_by_objects_bytes || 0))
        end

        # @return [Array<Branch>] rows with anything in them
        def branches
          @branches ||= shown(ledger.rows).map.with_index(1) { |row, index| branch(row, index.to_s, row.id) }
        end

        # @return [Array<Drawing::Part>] of the bar
        def parts
          branches.map { |one| Drawing::Part.new(one.owner, one.mark, [one.row.bytes, 0].max, one.held_bytes) }
        end

        # @return [Integer] held without being in use, at least
        def held_bytes = branches.sum(&:held_bytes)

        # @return [Integer] the rows' sum
        def sum_bytes = ledger.rows.sum(&:bytes)

        # @return [Array<Finding>]
        def unhealthy = diagnosis.select(&:unhealthy?)

        # @return [Array(Integer, Integer)] what all levers together return, as far as it can be said: at least and at
        #   most. What decays is a part of what a purge returns
        def returnable
          known = forecast.levers.select { |lever| lever.predicted_bytes && lever.predicted_max_bytes }
          known = known.reject { |lever| lever.name == :decay }
          [known.sum(&:predicted_bytes), known.sum(&:predicted_max_bytes)]
        end

        private

        # A row of zero says nothing, except that nothing is unattributed.
        def shown(rows)
          rows.select { |row| !row.bytes.zero? || row.id == :unattributed || shown(row.children).any? }
        end

        def branch(row, mark, owner)
          below = shown(row.children).map { |child| branch(child, nil, owner) }
          rss = ledger.rss_bytes
          Branch.new(row, mark, owner, held(row), rss&.positive? ? row.bytes.fdiv(rss) : 0.0, below)
        end

        # Less by what is counted there and not resident: where that lies is not known.
        def held(row)
          leaves = row.each_leaf.select { |leaf| HELD.include?(leaf.id) || leaf.bytes.negative? }
          leaves.sum(&:bytes).clamp(0, [row.bytes, 0].max)
        end
      end

      # The overview, with the ledger as JSON and as text.
      #
      # @api private
      class OfLedger < Overview
        shows "Overview", :overview

        # @return [String]
        def text = Memscope::Report.render(reading, unicode: true)
      end

      # The overview, with the diagnosis as JSON and as text.
      #
      # @api private
      class OfDiagnosis < Overview
        shows "Overview", :overview

        # @return [Diagnosis]
        def reading = diagnosis

        # @return [String]
        def text = diagnosis.to_s(unicode: true)
      end
    end
  end
end
