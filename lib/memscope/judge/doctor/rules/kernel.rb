# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # What helps if the container has too little memory, and its cost.
      FEWER_WORKERS = ["WEB_CONCURRENCY=N # fewer than now, or raise the container's limit",
                       "#{RESTART}; costs throughput, or more memory"].freeze
      NO_HUGE_PAGES_ON_HOST = ["echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                               "as root, on the host, for all its processes; #{RESTART}; causes more TLB misses"].freeze

      # With the margin, a warning at 86 %, and critical at 95 %.
      rule(:near_limit, "a container near its limit", :working_set_bytes,
           inapplicable: :without_limit, floor: FLOOR, ratio: 0.78, of: :limit_bytes) do |bytes|
        fullness = limit_bytes.positive? ? bytes.fdiv(limit_bytes) : 0.0
        { title: "#{size(bytes)} of the container's #{size(limit_bytes)} is in use",
          severity: reaches?(fullness, 0.865) ? :critical : :warning,
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
        next unless reaches?(share, 0.73) # with the margin, a warning at 80 %, and critical at 97 %

        # As far as the ledger counts them. Each stack has a guard page.
        threads = %i[live cached].sum { |name| detail(:stacks, :threads, name).to_i }
        numbers = { "stacks of fibers" => 2 * detail(:stacks, :fibers, :stacks).to_i,
                    "stacks of threads" => 2 * threads,
                    "malloc's arenas" => 2 * detail(:malloc, :arenas, :heaps).to_i,
                    "malloc's large blocks" => detail(:malloc, :mmapped, :blocks).to_i }
        numbers = numbers.select { |_what, number| number.positive? }.max_by(3, &:last)
        held = { "stacks of fibers" => "Fiber", "stacks of threads" => "Thread" }[numbers.dig(0, 0)]
        of = numbers.map { |what, number| "#{count(number)} are of #{what}" }.join(", ")
        { title: "#{count(ledger.mappings)} of #{count(environment.max_mappings)} mappings are in use",
          severity: reaches?(share, 0.88) ? :critical : :warning,
          why: ["Beyond vm.max_map_count, the kernel maps nothing: no thread or fiber can be made.",
                ("Of these mappings, #{of}." unless of.empty?)],
          returns: "This finding is about a number of mappings.",
          remedy: [[*(command("heap", "--paths-to #{held}") if held),
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
