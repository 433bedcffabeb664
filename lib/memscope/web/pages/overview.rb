# frozen_string_literal: true

module Memscope
  module Web
    module Pages
      # The processes of the cluster, and the ledger of one of them, which are shown first. The page then fetches
      # itself with the findings (findings=1): the ledger, the diagnosis and the forecast of the levers, all based on
      # one deep ledger. That takes longer.
      # @api private
      class Overview < Page
        include OverTime

        READINGS = %i[ledger].freeze
        # Leaf rows of free but resident memory.
        FREE = %i[free_slots empty_pages slab_slack page_slack thread_caches dirty muzzy free top
                  retained_resident].freeze
        # The share of the RSS from which a row is shown expanded: OPEN for a top-level row, OPEN_BELOW for any other.
        OPEN = 0.1
        OPEN_BELOW = 0.4
        # The least width, in percent, on which a number fits on a phone.
        LEGIBLE = 4
        # Verdicts except :problems; outcomes of rules without a finding; the name and the effect of each lever.
        WORDS = Words.beside(__FILE__)
        SEVERITIES = { critical: %w[Critical ◆], warning: %w[Warning ▲], info: %w[Note ●] }.freeze

        Branch = Struct.new(:row, :mark, :owner, :held_bytes, :share, :branches) do
          def bytes = [row.bytes, 0].max

          def open? = share >= (mark ? OPEN : OPEN_BELOW)

          # @return [Array(Float, Float)] in use and unused, as shares of the RSS
          def shares
            held = row.bytes.positive? ? share * held_bytes / row.bytes : 0.0
            [share - held, held]
          end
        end

        # @return [Boolean] whether the page has the findings and the forecast
        def diagnosed? = !@collected.nil? || @request.query.key?("findings")

        # @return [Ledger] the one that the diagnosis is based on, if the page has one; else a cheap one
        def ledger = @ledger ||= diagnosed? ? diagnosis.evidence.ledger : read(:ledger)

        def diagnosis = diagnosed.diagnosis

        def doctor = read(:doctor)

        def forecast = diagnosed.forecast

        # @return [Memscope::Workers] the master and all workers; without a cluster, this process
        def workers = @processes.fetch(:workers)

        def to_s(**)
          diagnosis = doctor
          [diagnosis.evidence.ledger, diagnosis].map { |one| one.to_s(unicode: true) }.join("\n\n")
        end

        # @return [String, nil] the verdict on the process; nil before the diagnosis
        def verdict_sentence = (super if diagnosed?)

        # @return [Array<Peers::Entry>] other processes of this user that listen, such as Sidekiq's
        def peers
          own = Listener.current&.path or return []
          @peers ||= Peers.entries(pids: Peers.beside(own) - workers.map(&:pid))
        end

        # @return [String, nil] why this process knows no other worker, although it belongs to a cluster
        def alone = (workers.reasons[:workers] if @processes.workers.one?)

        def branches = @branches ||= ledger.rows.select(&:visible?).map { |row| branch(row, mark(row.id), row.id) }

        # @return [Array<Array(Branch, Float, Float, Float)>] the rows side by side, in percent: the left edge of each,
        #   its width, and the width of its unused end
        def segments
          whole = [branches.sum(&:bytes), 1].max
          left = 0.0
          branches.map do |branch|
            width, held = [branch.bytes, branch.held_bytes].map { |bytes| 100.0 * bytes / whole }
            segment = [branch, left, width, held]
            left += width
            segment
          end
        end

        # @return [Integer] a lower bound of the resident but unused memory
        def held_bytes = branches.sum(&:held_bytes)

        def sum_bytes = ledger.rows.sum(&:bytes)

        # @return [Float, nil] the predicted pause of a full GC, in milliseconds
        def gc_pause_ms = forecast.levers.find { |lever| lever.name == :gc }&.predicted_pause_ms

        private

        def diagnosed = @diagnosed ||= read(:diagnosis_with_forecast)

        def refresh = (link("/", findings: 1) unless diagnosed?)

        # The number of a top row, the same on all pages; empty if it has none.
        def mark(id) = Memscope::History::ROWS.index(id)&.succ.to_s

        def branch(row, mark, owner)
          below = row.children.select(&:visible?).map { |child| branch(child, nil, owner) }
          rss = ledger.rss_bytes
          Branch.new(row, mark, owner, held(row), rss&.positive? ? row.bytes.fdiv(rss) : 0.0, below)
        end

        # The free bytes of a row. Its negative leaves, which stand for bytes that are not resident, are subtracted:
        # those bytes may lie in free memory.
        def held(row)
          leaves = row.leaves.select { |leaf| FREE.include?(leaf.id) || leaf.bytes.negative? }
          leaves.sum(&:bytes).clamp(0, [row.bytes, 0].max)
        end
      end
    end
  end
end
