# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # What swap counts as, by what the platform says of itself.
      SWAP_COUNTS = lambda do |f|
        if f.environment.variables.key?(:DYNO)
          "Heroku's quota counts it together with the RSS"
        elsif f.cgroup.memory_and_swap_limit_bytes
          "the container's limit of #{size(f.cgroup.memory_and_swap_limit_bytes)} counts memory and swap together"
        elsif f.cgroup.swap_limit_bytes
          "the container limits swap by itself, to #{size(f.cgroup.swap_limit_bytes)}"
        else
          "no limit on swap can be read"
        end
      end
      private_constant :SWAP_COUNTS

      KERNEL_RULES = [
        Rule.new(
          id: :near_limit,
          subject: "a container near its limit",
          inapplicable: LIMITED,
          affected: :working_set_bytes,
          floor: FLOOR, ratio: 0.85, of: :limit_bytes,
          severity: ->(f) { f.fullness >= 0.95 ? :critical : :warning },
          recoverable: "The findings on this process say what can be given back.",
          title: ->(f, bytes) { "#{size(bytes)} of the container's #{size(f.limit_bytes)} are taken" },
          explanation: lambda do |f, bytes|
            left = size([f.limit_bytes - bytes, 0].max)
            "The working set is #{percent(f.fullness)} of the limit, #{left} are left. This process has " \
              "#{size(f.rss_bytes || 0)}."
          end,
          evidence: lambda do |f|
            { limit_bytes: f.limit_bytes, working_set_bytes: f.working_set_bytes, rss_bytes: f.rss_bytes,
              headroom_bytes: f.cgroup.headroom_bytes, oom_kill: f.cgroup.events&.[](:oom_kill) }
          end,
          remedy: "WEB_CONCURRENCY=1 # fewer workers, or a higher limit",
          remedy_cost: "less throughput, or more memory"
        ),
        Rule.new(
          id: :out_of_memory,
          subject: "processes killed for memory",
          inapplicable: LIMITED,
          present: ->(f) { (f.cgroup.events&.[](:oom_kill) || 0).positive? },
          title: ->(f) { "#{count(f.cgroup.events[:oom_kill])} processes of this container were killed for memory" },
          explanation: "The kernel counts since the container was made; none of them need have been like this one.",
          evidence: ->(f) { { limit_bytes: f.limit_bytes, peak_bytes: f.cgroup.peak_bytes, **f.cgroup.events } },
          recoverable: "It is about the past.",
          remedy: "WEB_CONCURRENCY=1 # fewer workers, or a higher limit",
          remedy_cost: "less throughput, or more memory"
        ),
        Rule.new(
          id: :swapped,
          subject: "memory in swap",
          affected: ->(f) { f.process_memory.swap_bytes },
          floor: FLOOR, ratio: 0.05,
          title: ->(_, bytes) { "#{size(bytes)} of this process are in swap, and RSS does not show them" },
          explanation: lambda do |f|
            "Together it has #{size(f.rss_bytes + f.process_memory.swap_bytes)}; #{SWAP_COUNTS.call(f)}."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, swap_bytes: f.process_memory.swap_bytes,
              container_swap_bytes: f.cgroup.swap_bytes, swap_limit_bytes: f.cgroup.swap_limit_bytes,
              memory_and_swap_limit_bytes: f.cgroup.memory_and_swap_limit_bytes }
          end,
          recoverable: "What is in swap is in use.",
          remedy: "WEB_CONCURRENCY=1 # fewer workers, or a higher limit",
          remedy_cost: "less throughput, or more memory"
        ),
        Rule.new(
          id: :worker_capacity,
          subject: "how many workers fit",
          inapplicable: LIMITED,
          present: :capacity,
          severity: :info,
          confidence: :likely,
          title: lambda { |f|
            "the container's #{size(f.limit_bytes)} hold #{count(f.capacity)} such process#{'es' if f.capacity != 1}"
          },
          explanation: lambda do |f|
            "Each takes #{size(f.process_memory.uss_bytes)} for itself, and all share " \
              "#{size(f.process_memory.shared_bytes)}; growth and page cache come on top."
          end,
          evidence: lambda do |f|
            { limit_bytes: f.limit_bytes, uss_bytes: f.process_memory.uss_bytes,
              shared_bytes: f.process_memory.shared_bytes, processes: f.capacity }
          end,
          recoverable: "It is about other processes."
        ),
        Rule.new(
          id: :huge_pages,
          subject: "huge pages",
          affected: ->(f) { f.process_memory.anonymous_huge_bytes },
          floor: 2 * FLOOR, ratio: 0.25,
          severity: ->(f) { f.unused_bytes && f.unused_bytes >= [FLOOR, 0.10 * f.rss_bytes].max ? :warning : :info },
          confidence: :likely,
          recoverable: "Which of their pages would be resident by themselves is not known.",
          title: ->(_, bytes) { "#{size(bytes)} are in huge pages, resident as a whole" },
          explanation: lambda do |f|
            "Of a huge page all of its 2 MiB are resident, however little of it is used. malloc has " \
              "#{size(f.unused_bytes || 0)} resident that are not in use."
          end,
          evidence: lambda do |f|
            { rss_bytes: f.rss_bytes, unused_bytes: f.unused_bytes, thp_enabled: f.process_memory.thp_enabled?,
              **HUGE.call(f) }
          end,
          remedy: ->(f) { f.jemalloc? ? "MALLOC_CONF=thp:never" : "GLIBC_TUNABLES=glibc.malloc.hugetlb=0" },
          remedy_cost: "a restart; more TLB misses"
        )
      ].freeze
      private_constant :KERNEL_RULES
    end
  end
end
