# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # If the container has too little memory.
      FEWER_WORKERS = %i[fewer_workers fewer_workers_cost].freeze

      # With the margin, a warning at 86 %, and critical at 95 %.
      rule(:near_limit, :working_set_bytes,
           inapplicable: :without_limit, floor: FLOOR, ratio: 0.78, of: :limit_bytes) do |bytes|
        fullness = limit_bytes.positive? ? bytes.fdiv(limit_bytes) : 0.0
        { severity: reaches?(fullness, 0.865) ? :critical : :warning, remedy: FEWER_WORKERS,
          figures: { fullness: fullness }, evidence: { limit_bytes: limit_bytes } }
      end

      rule(:out_of_memory, inapplicable: :without_limit) do
        kills = cgroup.events&.[](:oom_kill).to_i
        next unless kills.positive?

        { remedy: FEWER_WORKERS, figures: { kills: kills },
          evidence: { limit_bytes: limit_bytes, peak_bytes: cgroup.peak_bytes } }
      end

      rule(:swapped, :swap_bytes, floor: FLOOR, ratio: 0.05) do |bytes|
        both = cgroup.memory_and_swap_limit_bytes
        swap = cgroup.swap_limit_bytes
        limit = swap ? :own_limit : :no_limit
        limit = :common_limit if both
        limit = :quota if environment.variables.key?(:DYNO)
        { remedy: FEWER_WORKERS, figures: { both_bytes: rss_bytes + bytes,
                                            limit: text(limit, of: :swapped, limit_bytes: both || swap) } }
      end

      rule(:mappings, inapplicable: lambda do
        :unknown unless ledger.mappings && environment.max_mappings&.positive?
      end) do
        share = ledger.mappings.fdiv(environment.max_mappings)
        next unless reaches?(share, 0.73) # with the margin, a warning at 80 %, and critical at 97 %

        # As far as the ledger counts them. Each stack has a guard page.
        threads = %i[live cached].sum { |name| detail(:stacks, :threads, name).to_i }
        numbers = { fibers: 2 * detail(:stacks, :fibers, :stacks).to_i, threads: 2 * threads,
                    arenas: 2 * detail(:malloc, :arenas, :heaps).to_i, blocks: detail(:malloc, :mmapped, :blocks).to_i }
        numbers = numbers.select { |_what, number| number.positive? }.max_by(3, &:last)
        type = { fibers: "Fiber", threads: "Thread" }[numbers.dig(0, 0)]
        parts = numbers.map { |what, number| text(what, of: :mappings, number: number) }.join(", ")
        { severity: reaches?(share, 0.88) ? :critical : :warning, why: [:why, (:parts if numbers.any?)],
          remedy: [[*(:stacks if type), :remedy], :cost],
          figures: { mappings: ledger.mappings, max_mappings: environment.max_mappings, parts: parts, type: type } }
      end

      rule(:huge_pages, :anonymous_huge_bytes, inapplicable: -> { :asked if malloc_asks_for_huge_pages? },
                                               floor: 2 * FLOOR, ratio: 0.25) do
        { severity: reaches?(unused_bytes, [FLOOR, 0.10 * rss_bytes].max) ? :warning : :info, confidence: :likely,
          remedy: without_jemalloc ? %i[remedy_on_host cost_on_host] : %i[remedy cost],
          figures: { idle_bytes: unused_bytes || 0 } }
      end
    end
  end
end
