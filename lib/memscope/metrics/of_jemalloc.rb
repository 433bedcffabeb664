# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    # jemalloc's totals: name, type, key of Snapshot#jemalloc, help.
    JEMALLOC_TOTALS = [
      ["jemalloc_allocated_bytes", :gauge, :allocated_bytes, "Given out by jemalloc, thread caches included"],
      ["jemalloc_active_bytes", :gauge, :active_bytes, "In pages that hold something given out"],
      ["jemalloc_metadata_bytes", :gauge, :metadata_bytes, "What jemalloc needs for itself"],
      ["jemalloc_resident_bytes", :gauge, :resident_bytes, "The most that jemalloc can have resident; not the RSS"],
      ["jemalloc_mapped_bytes", :gauge, :mapped_bytes, "Mapped by jemalloc; not comparable with resident"],
      ["jemalloc_retained_bytes", :gauge, :retained_bytes, "Address space that jemalloc keeps; hardly any is resident"],
      ["jemalloc_thread_caches_bytes", :gauge, :tcache_bytes, "Free in threads' caches"],
      ["jemalloc_slab_slack_bytes", :gauge, :slab_slack_bytes, "Free in slabs that are partly in use"],
      ["jemalloc_arenas", :gauge, :narenas, "Arenas"],
      ["jemalloc_background_threads", :gauge, :background_threads, "Threads that purge while the program's sleep"]
    ].freeze

    # Totals by a label: name, type, the label, key by its value, help.
    JEMALLOC_PARTS = [
      ["jemalloc_unused_bytes", :gauge, :pages, { dirty: :pdirty, muzzy: :pmuzzy },
       "Free pages that jemalloc keeps: dirty ones are resident, muzzy ones until the kernel wants them"],
      ["jemalloc_purged_bytes_total", :counter, :pages, { dirty: :dirty_purged, muzzy: :muzzy_purged },
       "Free pages that jemalloc has given back"],
      ["jemalloc_allocations_total", :counter, :size, { small: :small_nmalloc, large: :large_nmalloc },
       "Blocks given out, by size class; those from a thread's cache are counted when it is filled"],
      ["jemalloc_deallocations_total", :counter, :size, { small: :small_ndalloc, large: :large_ndalloc },
       "Blocks taken back, by size class; those into a thread's cache are counted when it is flushed"]
    ].freeze

    OF_JEMALLOC = [
      *JEMALLOC_TOTALS.map do |name, type, key, help|
        Definition.new(name, help, source: :snapshot, type: type, read: ->(snapshot) { snapshot.jemalloc&.[](key) })
      end,
      *JEMALLOC_PARTS.map do |name, type, label, keys, help|
        Definition.new(name, help, source: :snapshot, type: type, labels: [label], read: lambda { |snapshot|
          totals = snapshot.jemalloc or next {}
          # jemalloc counts unused memory in pages.
          unit = label == :pages ? totals[:page_bytes] : 1
          keys.transform_values { |key| totals[key] && (totals[key] * unit) }
        })
      end
    ].freeze
    private_constant :JEMALLOC_TOTALS, :JEMALLOC_PARTS, :OF_JEMALLOC
  end
end
