# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # What helps if the container has too little memory, and its cost.
      FEWER_WORKERS = ["WEB_CONCURRENCY=N # fewer than now, or raise the container's limit",
                       "#{RESTART}; costs throughput, or more memory"].freeze
      NO_HUGE_PAGES_ON_HOST = ["echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                               "as root, on the host, for all its processes; #{RESTART}"].freeze

      rule(:near_limit, "a container near its limit", :working_set_bytes,
           inapplicable: :without_limit, floor: FLOOR, ratio: 0.85, of: :limit_bytes) do |bytes|
        fullness = limit_bytes.positive? ? bytes.fdiv(limit_bytes) : 0.0
        { title: "#{size(bytes)} of the container's #{size(limit_bytes)} is in use",
          severity: reaches?(fullness, 0.95) ? :critical : :warning,
          why: "The working set is #{percent(fullness)} of the limit. The RSS of " \
               "this process is #{size(rss_bytes)}.",
          returns: "The findings on this process show what it can return.", remedy: FEWER_WORKERS,
          evidence: { limit_bytes: limit_bytes } }
      end

      rule(:out_of_memory, "out-of-memory kills", inapplicable: :without_limit) do
        kills = cgroup.events&.[](:oom_kill).to_i
        next unless kills.positive?

        { title: "out-of-memory kills in this container: #{count(kills)}",
          why: "They are counted since the container was created, for all of its processes.",
          returns: "The kills are in the past.", remedy: FEWER_WORKERS,
          evidence: { limit_bytes: limit_bytes, peak_bytes: cgroup.peak_bytes } }
      end

      rule(:swapped, "memory in swap", :swap_bytes, floor: FLOOR, ratio: 0.05) do |bytes|
        both = cgroup.memory_and_swap_limit_bytes
        swap = cgroup.swap_limit_bytes
        counts = "no limit on swap is known"
        counts = "the container has a separate limit on swap, #{size(swap)}" if swap
        counts = "the container's limit of #{size(both)} counts memory and swap together" if both
        counts = "Heroku's quota counts swap and RSS together" if environment.variables.key?(:DYNO)
        { title: "#{size(bytes)} of this process is in swap, which RSS does not show",
          why: "RSS and swap together are #{size(rss_bytes + bytes)}; #{counts}.",
          returns: "The memory in swap is in use.", remedy: FEWER_WORKERS }
      end

      rule(:mappings, "mappings near the kernel's limit", inapplicable: lambda do
        known = ledger.mappings && environment.max_mappings&.positive?
        "the number of mappings or its limit is unknown" unless known
      end) do
        share = ledger.mappings.fdiv(environment.max_mappings)
        next unless share >= 0.8

        stacks = { "Fiber" => detail(:stacks, :fibers, :stacks).to_i,
                   "Thread" => %i[live cached].sum { |name| detail(:stacks, :threads, name).to_i } }
        held, number = stacks.transform_values { |all| 2 * all }.max_by(&:last) # each has a guard page
        many = number > ledger.mappings / 2
        { title: "#{count(ledger.mappings)} of #{count(environment.max_mappings)} mappings are in use",
          severity: share >= 0.97 ? :critical : :warning,
          why: ["Beyond vm.max_map_count, the kernel maps nothing: no thread or fiber can be made.",
                ("Of these mappings, #{count(number)} are of stacks of #{held.downcase}s." if many)],
          returns: "This finding is about a number of mappings.",
          remedy: [[many ? command("heap", "--paths-to #{held}") : command("report", "--mappings"),
                    "sysctl vm.max_map_count=262144"].join("\n"),
                   "as root, on the host: only postpones it if the number of mappings grows"] }
      end

      rule(:huge_pages, "huge pages", :anonymous_huge_bytes, inapplicable: lambda do
        "malloc asks for huge pages; see \"malloc in huge pages\"" if malloc_asks_for_huge_pages?
      end, floor: 2 * FLOOR, ratio: 0.25) do |bytes|
        { title: "#{size(bytes)} is in huge pages, each resident as a whole", confidence: :likely,
          severity: reaches?(unused_bytes, [FLOOR, 0.10 * rss_bytes].max) ? :warning : :info,
          why: "#{WHOLE_PAGES} #{size(unused_bytes || 0)} of malloc is resident but unused.",
          returns: UNKNOWN_WITHOUT_HUGE,
          remedy: without_jemalloc ? NO_HUGE_PAGES_ON_HOST : NO_HUGE_PAGES }
      end
      private_constant :FEWER_WORKERS, :NO_HUGE_PAGES_ON_HOST
    end
  end
end
