# frozen_string_literal: true

require_relative "../../value/reading"
Memscope::Loading.units :Verdict, :Worker

module Memscope
  module Metrics
    Record.declare(__FILE__)

    # The declaration of one family: its name, its meaning, and where its samples come from.
    #
    # A name ends in its base unit, if it has one; the name of a counter ends in _total. Labels are a closed list; their
    # values are bounded by memscope itself (rows, arenas, workers, kinds, 20 classes, 50 tags) and never come from
    # users: tags are names of actions and jobs.
    class Definition
      # @!attribute [r] name
      #   @return [String] "memscope_ledger_bytes"
      # @!attribute [r] type
      #   @return [Symbol] :gauge, or :counter for a total that only rises
      # @!attribute [r] unit
      #   @return [String, nil] "bytes", "seconds" or "bytes_per_second"; nil for plain numbers
      # @!attribute [r] help
      #   @return [String] one sentence for people, without a full stop
      # @!attribute [r] labels
      #   @return [Array<Symbol>] without :worker, which `label_names` adds
      # @!attribute [r] source
      #   @return [Symbol, nil] the key, in Readings, of the reading that has the numbers; nil if only workers' reports
      #     have them
      attr_reader :name, :type, :unit, :help, :labels, :source

      # @param name [String]
      # @param help [String]
      # @param source [Symbol, nil]
      # @param read [Symbol, Proc, nil] returns a number from the reading or, if there are labels, a Hash from their
      #   values to numbers; nil is unknown, and has no sample
      # @param report [Symbol, Proc, nil] returns the same from a worker's report instead; by default, if the source is
      #   :snapshot, what `read` returns for the report's snapshot
      # @param labels [Array<Symbol>]
      def initialize(name, help, source, read = nil, report: nil, labels: [])
        @name = "memscope_#{name}".freeze
        @type = name.end_with?("_total") ? :counter : :gauge
        @unit = name[/_(bytes_per_second|bytes|seconds)(_total)?\z/, 1].freeze
        @help = help
        @labels = labels.freeze
        @source = source
        @read = read&.to_proc
        @report = report&.to_proc || (of_reported_snapshot(@read) if source == :snapshot)
        freeze
      end

      # @return [Boolean] whether workers report it, so that any of them can answer for all
      def reported? = !@report.nil?

      # @return [Boolean] whether it is the same for all workers, and has no label :worker
      def shared? = %i[allocator cgroup].include?(source)

      # @return [Array<Symbol>] all labels that a sample may have
      def label_names = shared? ? labels : [*labels, :worker]

      # @param reading [Reading, nil] the reading of `source`
      # @param worker [String, nil] the label of this process; nil for none
      # @return [Hash{Hash{Symbol => String} => Numeric}] by labels; a Hash, so that no two samples have the same labels
      def samples(reading, worker)
        worker = nil if shared?
        reading ? labelled(@read.call(reading), worker) : {}
      end

      # @param workers [Hash{String => Worker}] by label
      # @return [Hash{Hash{Symbol => String} => Numeric}] by labels
      def reported_samples(workers)
        workers.reduce({}) { |samples, (label, worker)| samples.update(labelled(@report.call(worker), label)) }
      end

      private

      def of_reported_snapshot(read) = ->(worker) { worker.snapshot && read.call(worker.snapshot) }

      def labelled(values, worker)
        own = worker ? { worker: worker } : {}
        return {} if values.nil?
        return { own => values } if labels.empty?

        values.compact.transform_keys { |key| labels.zip(Array(key).map(&:to_s)).to_h.update(own) }
      end
    end

    # Groups of families: by the end of each name, what is read, and the help.
    #
    # @api private
    module Tables
      # Keys of GC.stat. A key that this Ruby does not have yields no sample.
      GC = {
        live_slots: [:heap_live_slots, "Slots of Ruby's heap that hold an object, uncollected garbage included"],
        free_slots: [:heap_free_slots, "Slots of Ruby's heap without an object"],
        heap_pages: [:heap_allocated_pages, "Pages of Ruby's heap"],
        old_objects: [:old_objects, "Objects that only a major collection marks"],
        malloc_increase_bytes: [:malloc_increase_bytes, "Allocated since the last collection: a trigger, not usage"],
        malloc_increase_limit_bytes: [:malloc_increase_bytes_limit, "The increase that starts a collection"],
        oldmalloc_increase_bytes: [:oldmalloc_increase_bytes, "Allocated since the last major collection: a trigger"],
        oldmalloc_increase_limit_bytes: [:oldmalloc_increase_bytes_limit, "The increase that starts a major GC"],
        compactions_total: [:compact_count, "Compactions of Ruby's heap"],
        allocated_objects_total: [:total_allocated_objects, "Objects allocated"],
        freed_objects_total: [:total_freed_objects, "Objects freed by collections"],
        allocated_pages_total: [:total_allocated_pages, "Pages added to Ruby's heap"],
        freed_pages_total: [:total_freed_pages, "Pages of Ruby's heap that were freed"]
      }.freeze
      GC_PAGE_BYTES = ::GC::INTERNAL_CONSTANTS[:HEAP_PAGE_SIZE]

      # Keys of Snapshot#jemalloc.
      JEMALLOC = {
        allocated_bytes: [:allocated_bytes, "Allocated from jemalloc, thread caches included"],
        active_bytes: [:active_bytes, "In pages with allocations in them"],
        metadata_bytes: [:metadata_bytes, "Metadata of jemalloc"],
        resident_bytes: [:resident_bytes, "The most that jemalloc can have resident; not the RSS"],
        mapped_bytes: [:mapped_bytes, "Mapped by jemalloc; not comparable with resident"],
        retained_bytes: [:retained_bytes, "Address space that jemalloc keeps; hardly any is resident"],
        thread_caches_bytes: [:tcache_bytes, "Free in thread caches"],
        slab_slack_bytes: [:slab_slack_bytes, "Free in slabs that are partly in use"],
        arenas: [:narenas, "Arenas"],
        background_threads: [:background_threads, "Threads of jemalloc that purge unused pages"]
      }.freeze
      # Families with a label: the label, the key of Snapshot#jemalloc for each of its values, and help. Keys for the
      # label :pages count pages; `jemalloc_parts` converts these to bytes.
      JEMALLOC_PARTS = {
        unused_bytes: [:pages, { dirty: :pdirty, muzzy: :pmuzzy },
                       "Free pages that jemalloc keeps: dirty ones stay resident, muzzy ones until reclaimed"],
        purged_bytes_total: [:pages, { dirty: :dirty_purged, muzzy: :muzzy_purged },
                             "Free pages that jemalloc has returned"],
        allocations_total: [:size, { small: :small_nmalloc, large: :large_nmalloc },
                            "Allocations by size class; those from a thread cache count when the cache is filled"],
        deallocations_total: [:size, { small: :small_ndalloc, large: :large_ndalloc },
                              "Deallocations by size class; those into a thread cache count when it is flushed"]
      }.freeze

      # Methods of Cgroup.
      CGROUP = {
        limit_bytes: "The effective limit; no sample where there is none",
        current_bytes: "Charged to the group and those below it, page cache included",
        peak_bytes: "The most charged so far",
        working_set_bytes: "Current usage minus inactive page cache; Kubernetes evicts by this figure",
        headroom_bytes: "The limit minus this group's own working set",
        hierarchy_headroom_bytes: "The smallest headroom under the limits of the group and of the groups above it",
        high_bytes: "The kernel throttles the group above this usage; no sample where it is not set",
        swap_bytes: "Swapped out",
        swap_limit_bytes: "The limit of swap; no sample where there is none",
        anonymous_bytes: "Memory without a file",
        file_bytes: "Page cache, shared memory included",
        inactive_file_bytes: "Page cache that the kernel reclaims first",
        kernel_bytes: "Kernel memory",
        host_memory_bytes: "Memory of the machine: the bound of a group without a limit"
      }.freeze

      # Fields from Arena::LEVELS. A level that the allocator does not count has no sample.
      ARENA = {
        allocated_bytes: "Allocated from the arena",
        active_bytes: "In pages of the arena with allocations in them (jemalloc)",
        dirty_bytes: "Free pages that the arena keeps resident (jemalloc)",
        muzzy_bytes: "Free pages that the arena keeps until the kernel reclaims them (jemalloc)",
        retained_bytes: "Address space that the arena keeps (jemalloc)",
        resident_bytes: "The most that the arena can have resident (jemalloc)",
        metadata_bytes: "Metadata of the arena (jemalloc)",
        tcache_bytes: "Free in caches of the threads that use the arena (jemalloc)",
        threads: "Threads assigned to the arena (jemalloc)",
        system_bytes: "Memory that the arena has from the kernel (glibc)",
        free_bytes: "Free blocks in the arena (glibc)",
        fast_bytes: "Free blocks of small sizes, which are not merged (glibc)"
      }.freeze

      # From the last verdict, of processes that keep their history.
      VERDICT = {
        "verdict" => [->(verdict) { Verdict::KINDS.to_h { |kind| [kind, kind == verdict.kind ? 1 : 0] } }, %i[kind],
                      "1 for the kind of the last verdict on how memory grows, 0 for the others"],
        "leak_bytes_per_second" => [->(verdict) { verdict.leak? ? verdict.bytes_per_hour.fdiv(3_600) : 0 }, [],
                                    "How fast memory leaks, beside all other growth; 0 without a leak"],
        "limit_eta_seconds" => [:eta_seconds.to_proc, [],
                                "Until a leak reaches the limit; no sample without a leak or a limit"]
      }.freeze

      # Fields of Tags::Row.
      TAG = {
        runs_total: [:runs, "Runs (requests, jobs) that have begun, by tag, of the 50 that retain most"],
        running: [:running, "Runs in progress"],
        allocated_objects: [:allocated_objects, "Objects that a run allocates; needs a profile of objects"],
        malloc_allocated_bytes: [:malloc_allocated_bytes,
                                 "Allocated through malloc by a run; needs jemalloc or a malloc profile"],
        live_objects: [:live_objects, "Live objects that runs have allocated since the profile of objects began"],
        live_bytes: [:live_bytes, "Bytes of these, with the malloc memory that they report"],
        malloc_live_bytes: [:malloc_live_bytes,
                            "Live memory that runs have allocated through malloc since the malloc profile began"],
        retained_objects: [:retained_objects, "Objects that 1,000 runs retain; no sample for a tag with too few runs"],
        retained_objects_error: [:retained_objects_error, "One standard error of that number"]
      }.freeze

      # Families that only the workers' reports have, beside those of Worker::COLUMNS.
      WORKER = {
        rss_growth_bytes_per_second: [->(worker) { worker.verdict&.bytes_per_hour&.fdiv(3_600) },
                                      "How fast its RSS grows, without steps and warm-up; no sample while too early"],
        phase: [:phase, "Puma's phase: each phased restart adds one"],
        boot_time_seconds: [->(worker) { worker.booted_at&.to_f&.round(3) },
                            "When the worker started, in seconds since 1970"],
        report_time_seconds: [->(worker) { worker.at&.to_f&.round(3) },
                              "When the worker last reported, in seconds since 1970"]
      }.freeze

      # Keys of Cost, for the readings of a collection and for those in the workers' reports.
      READING = {
        "reading_seconds" => [:wall_us, "Duration of the latest reading of each kind"],
        "reading_gvl_seconds" => [:gvl_us, "How long the latest reading of each kind held the GVL"]
      }.freeze

      # The runs of a tag are a counter. The runs of Tags::OTHER are not: they are a sum, which jumps when a tag joins
      # the others.
      #
      # @param rows [Array<Tags::Row>]
      # @return [Hash{String => Numeric, nil}] by tag
      def self.by_tag(rows, field)
        rows = rows.reject { |row| row.name == Tags::OTHER } if field == :runs
        rows.to_h { |row| [row.name, row.public_send(field)] }
      end

      # @return [Numeric, nil]
      def self.heap_bytes(snapshot)
        pages = snapshot.gc[:heap_allocated_pages]
        pages && GC_PAGE_BYTES && (pages * GC_PAGE_BYTES)
      end

      # @return [Hash{Array => Integer}] by action and whether it was executed
      def self.decisions(worker)
        (worker.policy_decisions || {}).flat_map do |action, counts|
          counts.map { |executed, number| [[action, executed.to_sym == :executed], number] }
        end.to_h
      end

      # @return [Hash{Symbol => Numeric, nil}]
      def self.jemalloc_parts(totals, label, keys)
        unit = label == :pages ? totals[:page_bytes] : 1
        keys.transform_values { |key| totals[key] && (totals[key] * unit) }
      end
    end
    private_constant :Tables

    # All families, in the order of their export. The costs of the readings are last, when all readings have been taken.
    #
    # @return [Array<Definition>]
    DEFINITIONS = [
      Definition.new("rss_bytes", "Resident memory; with Puma, that of each worker as last reported", :snapshot,
                     :rss_bytes, report: :rss_bytes),
      Definition.new("virtual_bytes", "Address space", :snapshot, :virtual_bytes),
      Definition.new("shared_bytes", "Resident pages of files and of shared memory", :snapshot, :shared_bytes),
      Definition.new("allocator_info", "Always 1; the labels are the library that serves malloc, and its version",
                     :allocator, ->(allocator) { { [allocator.name, allocator.version] => 1 } },
                     labels: %i[allocator version]),
      Definition.new("ruby_heap_bytes", "Pages of Ruby's heap, whether resident or not", :snapshot,
                     Tables.method(:heap_bytes)),
      Definition.new("gc_collections_total", "Garbage collections", :snapshot,
                     ->(snapshot) { { minor: snapshot.gc[:minor_gc_count], major: snapshot.gc[:major_gc_count] } },
                     labels: %i[kind]),
      Definition.new("gc_time_seconds_total", "Time spent in collections, rounded down to milliseconds", :snapshot,
                     ->(snapshot) { snapshot.gc[:time]&.fdiv(1_000) }),
      *Tables::GC.map do |name, (key, help)|
        Definition.new("gc_#{name}", help, :snapshot, ->(snapshot) { snapshot.gc[key] })
      end,
      *Tables::JEMALLOC.map do |name, (key, help)|
        Definition.new("jemalloc_#{name}", help, :snapshot, ->(snapshot) { snapshot.jemalloc&.[](key) })
      end,
      *Tables::JEMALLOC_PARTS.map do |name, (label, keys, help)|
        read = ->(snapshot) { snapshot.jemalloc ? Tables.jemalloc_parts(snapshot.jemalloc, label, keys) : {} }
        Definition.new("jemalloc_#{name}", help, :snapshot, read, labels: [label])
      end,
      *Tables::CGROUP.map { |name, help| Definition.new("cgroup_#{name}", help, :cgroup, name) },
      Definition.new("cgroup_cpus", "How many CPUs' time the group may use; no sample without a quota", :cgroup,
                     :cpu_limit),
      Definition.new("cgroup_events_total", "Events at the limits, by the kernel's names", :cgroup,
                     ->(cgroup) { cgroup.events.to_h }, labels: %i[event]),
      Definition.new("cgroup_pressure_seconds_total", "Time in which some, or all, tasks waited for memory", :cgroup,
                     ->(cgroup) { cgroup.pressure.to_h.transform_values { |stall| stall[:total_us]&.fdiv(1_000_000) } },
                     labels: %i[stall]),
      Definition.new("ledger_bytes",
                     "Resident memory by its proven owner, or unattributed; sums to memscope_ledger_rss_bytes",
                     :ledger, :leaf_bytes, report: :leaves, labels: %i[row]),
      Definition.new("ledger_rss_bytes", "Resident memory that the ledger's own scan saw", :ledger, :rss_bytes,
                     report: :ledger_rss_bytes),
      Definition.new("ledger_read_time_seconds", "When the ledger was read, in seconds since 1970", :ledger,
                     ->(ledger) { ledger.at.to_f.round(3) },
                     report: ->(worker) { worker.rows && worker.at.to_f.round(3) }),
      Definition.new("ledger_unverified_rows", "Rows that another source contradicts", :ledger, :unverified_rows,
                     report: :unverified_rows),
      *Tables::ARENA.map do |name, help|
        Definition.new("arena_#{name}", help, :arenas, ->(arenas) { arenas.level(name) },
                       report: ->(worker) { worker.arenas&.[](name) }, labels: %i[arena])
      end,
      *Tables::VERDICT.map do |name, (read, labels, help)|
        Definition.new(name, help, :verdict, read, labels: labels,
                                                   report: ->(worker) { worker.verdict && read.call(worker.verdict) })
      end,
      Definition.new("policy_decisions_total", "What the policy decided to do, and whether it was executed", :policy,
                     Tables.method(:decisions), report: Tables.method(:decisions), labels: %i[action executed]),
      Definition.new("objects", "Objects of the 20 classes with the most memory, garbage included", :census,
                     ->(census) { census.by(:class).first(20).to_h { |row| [row.name, row.count] } },
                     labels: %i[class]),
      *Tables::TAG.map do |name, (field, help)|
        Definition.new("tag_#{name}", help, :tags, ->(tags) { Tables.by_tag(tags.rows, field) },
                       report: ->(worker) { Tables.by_tag(worker.tags || [], field) }, labels: %i[tag])
      end,
      *Worker::COLUMNS.filter_map do |field, (_heading, help)|
        Definition.new("worker_#{field}", help, nil, report: field) if help
      end,
      *Tables::WORKER.map { |name, (report, help)| Definition.new("worker_#{name}", help, nil, report: report) },
      *Tables::READING.map do |name, (key, help)|
        read = ->(taken) { taken.transform_values { |reading| reading.cost.public_send(key).fdiv(1_000_000) } }
        report = ->(worker) { worker.costs&.transform_values { |cost| cost[key].fdiv(1_000_000) } }
        Definition.new(name, help, :taken, read, report: report, labels: %i[reading])
      end
    ].freeze
  end
end
