# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Which limit counts swap, as far as the environment and the cgroup show it.
      SWAP_COUNTS = lambda do |f|
        if f.environment.variables.key?(:DYNO)
          "Heroku's quota counts swap and RSS together"
        elsif f.cgroup.memory_and_swap_limit_bytes
          "the container's limit of #{size(f.cgroup.memory_and_swap_limit_bytes)} counts memory and swap together"
        elsif f.cgroup.swap_limit_bytes
          "the container has a separate limit on swap, #{size(f.cgroup.swap_limit_bytes)}"
        else
          "no limit on swap is known"
        end
      end

      # What helps if the container has too little memory, and its cost.
      FEWER_WORKERS = ["WEB_CONCURRENCY=N # fewer than now, or raise the container's limit",
                       "requires a restart; costs throughput, or more memory"].freeze

      # The number of mappings as a share of what the kernel allows.
      MAPPINGS = lambda do |f|
        most = f.environment.max_mappings
        f.ledger.mappings.fdiv(most) if f.ledger.mappings && most&.positive?
      end
      # What most mappings are of, as far as the ledger counts it, the most first. Each stack has a guard page.
      MAPPINGS_OF = lambda do |f|
        threads = %i[live cached].sum { |name| f.detail(:stacks, :threads, name).to_i }
        numbers = { "stacks of fibers" => 2 * f.detail(:stacks, :fibers, :stacks).to_i,
                    "stacks of threads" => 2 * threads,
                    "malloc's arenas" => 2 * f.detail(:malloc, :arenas, :heaps).to_i,
                    "malloc's large blocks" => f.detail(:malloc, :mmapped, :blocks).to_i }
        numbers.sort_by { |_what, number| -number }.to_h
      end

      KERNEL_RULES = table(
        near_limit: {
          subject: "a container near its limit",
          inapplicable: LIMITED,
          affected: :working_set_bytes,
          floor: FLOOR, ratio: 0.78, of: :limit_bytes, # with the margin, a warning at 86 %
          severity: ->(f) { f.reaches?(f.fullness, 0.865) ? :critical : :warning }, # with the margin, critical at 95 %
          recoverable: "The findings on this process show what it can return.",
          title: ->(f, bytes) { "#{size(bytes)} of the container's #{size(f.limit_bytes)} is in use" },
          explanation: lambda do |f, bytes|
            "The working set is #{percent(f.fullness)} of the limit; #{size([f.limit_bytes - bytes, 0].max)} is " \
              "left. The RSS of this process is #{size(f.rss_bytes || 0)}."
          end,
          evidence: lambda do |f|
            { limit_bytes: f.limit_bytes, working_set_bytes: f.working_set_bytes, rss_bytes: f.rss_bytes,
              headroom_bytes: f.cgroup.headroom_bytes, oom_kill: f.oom_kills }
          end,
          remedy: FEWER_WORKERS
        },
        out_of_memory: {
          subject: "out-of-memory kills",
          inapplicable: LIMITED,
          present: ->(f) { f.oom_kills&.positive? },
          title: ->(f) { "out-of-memory kills in this container: #{count(f.oom_kills)}" },
          explanation: "The kernel has counted these kills since the container was created; this process may have " \
                       "had no part in them.",
          evidence: ->(f) { { limit_bytes: f.limit_bytes, peak_bytes: f.cgroup.peak_bytes, **f.cgroup.events } },
          recoverable: "The kills are in the past.",
          remedy: FEWER_WORKERS
        },
        swapped: {
          subject: "memory in swap",
          affected: ->(f) { f.process_memory.swap_bytes },
          floor: FLOOR, ratio: 0.05,
          title: ->(_, bytes) { "#{size(bytes)} of this process is in swap, which RSS does not show" },
          explanation: lambda do |f|
            "RSS and swap together are #{size(f.rss_bytes + f.process_memory.swap_bytes)}; #{SWAP_COUNTS.call(f)}."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, swap_bytes: f.process_memory.swap_bytes,
              container_swap_bytes: f.cgroup.swap_bytes, swap_limit_bytes: f.cgroup.swap_limit_bytes,
              memory_and_swap_limit_bytes: f.cgroup.memory_and_swap_limit_bytes }
          end,
          recoverable: "The memory in swap is in use.",
          remedy: FEWER_WORKERS
        },
        mappings: {
          subject: "mappings near the kernel's limit",
          inapplicable: ->(f) { "the number of mappings or its limit is unknown" unless MAPPINGS.call(f) },
          present: ->(f) { f.reaches?(MAPPINGS.call(f), 0.73) }, # with the margin, a warning at 80 %
          severity: ->(f) { f.reaches?(MAPPINGS.call(f), 0.88) ? :critical : :warning },
          recoverable: "This finding is about a number of mappings.",
          title: ->(f) { "#{count(f.ledger.mappings)} of #{count(f.environment.max_mappings)} mappings are in use" },
          explanation: lambda do |f|
            of = MAPPINGS_OF.call(f).first(3).map { |what, number| "#{count(number)} are of #{what}" }.join(", ")
            "Beyond vm.max_map_count, the kernel maps nothing: no thread or fiber can be made, and large blocks of " \
              "malloc fail. Of these mappings, #{of}."
          end,
          evidence: ->(f) { { mappings: f.ledger.mappings, max_mappings: f.environment.max_mappings } },
          remedy: lambda do |f|
            held = { "stacks of fibers" => "Fiber", "stacks of threads" => "Thread" }[MAPPINGS_OF.call(f).keys.first]
            [[*("#{heap(f)} --paths-to #{held}" if held), "sysctl vm.max_map_count=262144"].join("\n"),
             "as root, on the host: only postpones it if the number of mappings grows"]
          end
        },
        huge_pages: {
          subject: "huge pages",
          inapplicable: lambda do |f|
            "malloc asks for huge pages; see \"malloc in huge pages\"" if f.malloc_asks_for_huge_pages?
          end,
          affected: ->(f) { f.process_memory.anonymous_huge_bytes },
          floor: 2 * FLOOR, ratio: 0.25,
          severity: ->(f) { f.reaches?(f.unused_bytes, [FLOOR, 0.10 * f.rss_bytes].max) ? :warning : :info },
          confidence: :likely,
          recoverable: "It is unknown which of these pages would be resident without huge pages.",
          title: ->(_, bytes) { "#{size(bytes)} is in huge pages, each resident as a whole" },
          explanation: lambda do |f|
            "All 2 MiB of a huge page are resident, however little of it is used. #{size(f.unused_bytes || 0)} of " \
              "malloc is resident but unused."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, unused_bytes: f.unused_bytes, thp_enabled: f.process_memory.thp_enabled?,
              **HUGE.call(f) }
          end,
          remedy: lambda do |f|
            next NO_HUGE_PAGES if f.jemalloc?

            ["echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
             "as root, on the host: affects all its processes; requires a restart; causes more TLB misses"]
          end
        }
      )
      private_constant :SWAP_COUNTS, :FEWER_WORKERS, :MAPPINGS, :MAPPINGS_OF, :KERNEL_RULES
    end
  end
end
