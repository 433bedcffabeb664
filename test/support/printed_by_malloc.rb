# frozen_string_literal: true

require_relative "workloads/arenas"

# What malloc prints about itself (malloc_stats_print, malloc_info), beside memscope's readings of the same moment.
module PrintedByMalloc
  WORKLOAD = File.join(__dir__, "workloads/arenas.rb")
  JEMALLOC = "libjemalloc.so.2"

  # malloc_stats_print uses a block of 64 KiB from the first arena: its own numbers include that block, our later
  # reading does not.
  PRINTING_BYTES = 65_536

  # What malloc reports itself, our reading of the same moment, and the nanoseconds that both took.
  def described(call, preload: nil, env: {})
    skip_under_sanitizer
    ran = ChildProcess.run("ManyArenas.build; ManyArenas.described { Memscope.#{call} }",
                           preload: preload, env: env, requires: ["json", "memscope", "memscope_test", WORKLOAD])
    description, *others = ran.json
    description = JSON.parse(description, allow_duplicate_key: true).fetch("jemalloc") if preload
    [description, *others]
  end

  def small_class(bin, counts)
    regions = bin["nregs"] * counts["curslabs"]
    { "kind" => "small", "size_bytes" => bin["size"], "slab_bytes" => bin["slab_size"],
      "slab_regions" => bin["nregs"], "shards" => bin["nshards"], "slabs" => counts["curslabs"],
      "partly_used_slabs" => counts["nonfull_slabs"], "regions" => regions, "regions_in_use" => counts["curregs"],
      "in_use_bytes" => counts["curregs"] * bin["size"],
      "slack_bytes" => (regions - counts["curregs"]) * bin["size"], "allocations" => counts["nmalloc"],
      "deallocations" => counts["ndalloc"], "requests" => counts["nrequests"], "cache_fills" => counts["nfills"],
      "cache_flushes" => counts["nflushes"], "slabs_reused" => counts["nreslabs"] }
  end
end
