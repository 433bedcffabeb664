# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    # From GC.stat: name, type, key, help. A key that this Ruby does not have gives no sample.
    GC_STAT = [
      ["gc_live_slots", :gauge, :heap_live_slots,
       "Slots of Ruby's heap with an object in them, garbage that no collection has found yet included"],
      ["gc_free_slots", :gauge, :heap_free_slots, "Slots of Ruby's heap without an object"],
      ["gc_heap_pages", :gauge, :heap_allocated_pages, "Pages of Ruby's heap"],
      ["gc_old_objects", :gauge, :old_objects, "Objects that only a major collection looks at"],
      ["gc_malloc_increase_bytes", :gauge, :malloc_increase_bytes,
       "Allocated through malloc since the last collection: a trigger, not usage"],
      ["gc_malloc_increase_limit_bytes", :gauge, :malloc_increase_bytes_limit,
       "At which such an increase starts a collection"],
      ["gc_oldmalloc_increase_bytes", :gauge, :oldmalloc_increase_bytes,
       "Allocated through malloc since the last major collection: a trigger, not usage"],
      ["gc_oldmalloc_increase_limit_bytes", :gauge, :oldmalloc_increase_bytes_limit,
       "At which such an increase starts a major collection"],
      ["gc_compactions_total", :counter, :compact_count, "Compactions of Ruby's heap"],
      ["gc_allocated_objects_total", :counter, :total_allocated_objects, "Objects made"],
      ["gc_freed_objects_total", :counter, :total_freed_objects, "Objects that collections freed"],
      ["gc_allocated_pages_total", :counter, :total_allocated_pages, "Pages added to Ruby's heap"],
      ["gc_freed_pages_total", :counter, :total_freed_pages, "Pages of Ruby's heap that were given up"]
    ].freeze

    GC_PAGE_BYTES = ::GC::INTERNAL_CONSTANTS[:HEAP_PAGE_SIZE]

    GC_COLLECTIONS = { minor: :minor_gc_count, major: :major_gc_count }.freeze

    OF_GC = [
      Definition.new("ruby_heap_bytes", "Pages of Ruby's heap, whether resident or not",
                     source: :snapshot, read: lambda { |snapshot|
                       pages = snapshot.gc[:heap_allocated_pages]
                       pages && GC_PAGE_BYTES && (pages * GC_PAGE_BYTES)
                     }),
      Definition.new("gc_collections_total", "Garbage collections",
                     source: :snapshot, type: :counter, labels: %i[kind],
                     read: ->(snapshot) { GC_COLLECTIONS.transform_values { |key| snapshot.gc[key] } }),
      Definition.new("gc_time_seconds_total", "Time spent in collections, to the millisecond below",
                     source: :snapshot, type: :counter, read: ->(snapshot) { snapshot.gc[:time]&.fdiv(1_000) }),
      *GC_STAT.map do |name, type, key, help|
        Definition.new(name, help, source: :snapshot, type: type, read: ->(snapshot) { snapshot.gc[key] })
      end
    ].freeze
    private_constant :GC_STAT, :GC_PAGE_BYTES, :GC_COLLECTIONS, :OF_GC
  end
end
