# frozen_string_literal: true

require_relative "field"

module Memscope
  # The sentences for reasons, by the ids that the extension uses.
  #
  # A reason is a sentence, an id that stands for one, or an Array of an id and the arguments of its sentence. An
  # argument is a reason, a number, or an Array of these, which becomes a list. Safe in a trap handler.
  #
  # The sentences are one String until the first of them is asked for: as a Hash they would take another 30 KiB of every
  # process that loads memscope.
  #
  # @api private
  module Reasons
    SENTENCES = <<-'SENTENCES' # rubocop:disable Style/RedundantHeredocDelimiterQuotes -- else a String for each line
      # Statuses of the engine, mostly used as arguments of other sentences.
      ok: read
      unsupported: not supported on this platform
      denied: refused by the kernel
      not_found: not there
      malformed: not in the documented form
      no_memory: no memory could be mapped
      truncated: larger than the buffer for it
      io: could not be read
      exhausted: a limit on the number of processes is reached
      no_file: no descriptor is free (RLIMIT_NOFILE, or the system's limit)
      shared: a forked child of memscope shared all pages while it was read
      unread: %s: %s
      # The allocator.
      allocator_unknown: the allocator is unknown
      glibc_not_serving: glibc does not serve malloc
      jemalloc_absent: no jemalloc in this process
      jemalloc_lacks: this jemalloc has no %s
      jemalloc_not_serving: jemalloc does not serve malloc
      jemalloc_without_statistics: jemalloc was built without statistics (config.stats is false)
      object_unknown: the dynamic linker lists no object that contains malloc
      others_truncated: only the first %s are listed
      version_unknown: this allocator reports no version
      # The verdict.
      series_unsampled: %s has no sample yet
      series_began_late: %s has no sample in the first %s minutes judged
      series_ended: %s has no sample in the last %s minutes judged
      # Arenas, size classes and totals.
      arena_absent: arena %s does not exist or is not initialized
      arenas_changing: arenas changed while they were read, or this glibc's list of arenas is unknown
      arena_names_absent: only jemalloc 5.3.1 and newer has arena names
      epochs_mixed: another caller advanced jemalloc's epoch during the reading: numbers may be from two epochs
      fastbins_absent: this glibc has no fastbins (removed in 2.43)
      gc_heaps_absent: this Ruby has no GC.stat_heap
      glibc_without_classes: glibc has no size classes: it splits free memory to the requested size
      large_classes_rounded: an upper bound for large classes: this jemalloc rounds large allocations only to whole
        pages (opt.disable_large_size_classes)
      malloc_info_absent: this C library has no malloc_info
      mallinfo_absent: mallinfo2 is missing (glibc before 2.33) or returns only zeros
      mallinfo_not_requested: not requested: snapshot(malloc: true) reads mallinfo2
      statistics_unread: this allocator has no statistics that memscope reads
      # The process and its cgroup.
      cgroup_absent: no memory cgroup
      cgroup_directory_unread: the directory of the process's group: %s
      cgroup_file_unread: the process's cgroup file: %s
      cpu_group_unread: the group of the cpu controller: %s
      figure_absent: %s has no such figure
      from_file: from %s (%s)
      key_absent: %s: this kernel prints no %s
      limit_group_hidden: the group that sets the limit is not visible to this process
      memory_controller_absent: the hierarchy has no memory controller
      unlimited: unlimited (%s)
      # Ruby's heap.
      dump_unread: the dump could not be read: %s
      dump_without_names: a dump that ObjectSpace.dump_all wrote does not name references, such as constants
      dump_with_some_names: a dump that memscope wrote names constants and variables, but no global variables,
        indexes and keys
      one_dump_unread: dump %s could not be read: %s
      dumps_of_several_processes: the dumps are of different processes, or one was written by Ruby and another by
        memscope: most classes of one dump are at other addresses in the last dump, or not in it
      dump_without_slots: the dump does not state the sizes of slots, as Ruby's dumps do since 3.2
      dump_without_sites: unknown unless the program calls ObjectSpace.trace_object_allocations_start when it starts
      objects_by_address: a lower bound, unless a compaction moved objects, which then count as new: two objects count
        as the same if their address and class are, since the dumps do not say when objects were allocated
      objects_numbered: objects are more than 32 GiB apart, or BasicObject is missing: compare this dump with no other
      objects_untraced: %s of these objects have no trace: if a compaction moved them, they are not new
      class_without_objects: there is no object of a class of that name
      names_from_code: names of classes, constants and variables are shown; if made from data, they reveal that data
      names_of_threads: names of classes, constants, variables and threads are shown; if made from data, they reveal it
      dump_cut: the dump is incomplete: its last line has no end
      dump_lacks_objects: %s references lead to objects that are not in the dump
      dump_without_roots: the dump has no roots (it was written with since:), so what retains its objects, and which of
        them are garbage, is unknown
      dump_lines_unreadable: %s lines of the dump could not be understood
      allocatable_pages_absent: this Ruby has no :heap_allocatable_pages
      census_beside_ractors: other Ractors are alive: objects cannot be walked
      census_left_out: left out, since a census would stop Ruby for about %s ms and no child can take it (%s);
        Memscope.census, called in the process, takes one nevertheless
      child_ended: the child ended before it answered
      child_refused: no child could be forked: %s
      child_too_slow: the child took longer than %.1f s
      child_without_room: a child may need %s MiB, but only %s MiB are free
      constants_unnamed: constants have no names, because memscope does not recognize how this Ruby stores them
      gc_finished: this reading finished a garbage collection in progress
      graph_unanswered: the graph of the heap could not be built: %s
      heap_pages_absent: this Ruby's garbage collector has no heap pages that can be listed
      heap_pages_unlocked: other Ractors are alive, and this Ruby exports no lock for listing heap pages
      heap_walk_unexported: this Ruby does not export rb_objspace_each_objects
      walk_left_out: left out, since a walk of the heap would stop Ruby for about %s ms and no child can make it (%s);
        Memscope.ruby_heap and Memscope.ledger(objects: true), called in the process, walk the heap nevertheless
      objects_saturated: a lower bound that counts each object of 4 GiB or more as 4 GiB (%s objects)
      references_unexported: this Ruby does not export rb_objspace_reachable_objects_from
      references_unreadable: other Ractors are alive: references of objects cannot be read
      # What requires cost.
      requires_beside_ractor: a Ractor was created: later objects are not recorded, and may count for the wrong file
      requires_compacted: a compaction moved objects: some count for another file, or for none
      requires_crowded: blocks of malloc and objects that found no room in the records count for no file (%s)
      requires_lost: %s blocks that a library freed, by calls that memscope does not see, still count for their files;
        what is of no file is too small by as much
      requires_transient: before Ruby 3.3, short Arrays, Hashes and Structs get malloc memory only in or after a garbage
        collection: it counts for the file that is being loaded then, or for none
      # The ledger.
      blocks_unlisted: the blocks of this malloc cannot be listed
      buffers_outside_malloc: IO::Buffer objects also report %.1f MiB of mapped files and other memory outside malloc
      cached_chunks_unmarked: chunks in thread caches, if there are any (glibc.malloc.tcache_count), count as in use:
        glibc marks them since 2.34, and in this one (%s) no mark was found
      chunks_incomplete: the walk of glibc's heaps could not read all of them (memory is swapped out, or changed
        meanwhile), so how much malloc has in use and how much a trim returns is unknown
      chunks_unread: needs glibc's malloc, and a kernel that lists resident pages and lets this process read itself
      deep_without_effect: no effect under jemalloc, whose own statistics already give what the walk would find
      gc_sweeping: the garbage collector is sweeping: slots that it has not reached count as live
      held_beyond_malloc: objects report more than malloc has in use, so some of it is memory outside malloc
      jemalloc_ambiguous: %s mappings look like jemalloc's, and some of them are not: the resident memory of all of them
        is unattributed, and the negative row "not resident" subtracts what jemalloc's counters say of them
      jemalloc_partly_found: jemalloc has mapped more memory than was found (opt.dss, opt.hpa): the resident memory that
        was not found is unattributed, and the negative row "not resident" subtracts what jemalloc's counters say of it
      malloc_unidentified: malloc's memory cannot be identified and is unattributed: %s
      needs_deep: needs the option deep, which reads how much memory malloc has in use
      objects_left_out: a lower bound that leaves out objects with slow or broken size functions: %s
      objects_unasked: a lower bound without the malloc memory of these objects: %s
      stacks_unasked: Fiber or Thread (the sizes that these report include whole stacks)
      objects_of_other_types: %s of other types
      objects_of_type: %s of type %s
      objects_unwalked: objects cannot be walked in this Ruby, or while other Ractors are alive
      own_memory_slow: memfd: %s; memscope reads its memory through /proc/self/mem or a pipe: as exact, but slower
      own_memory_unread: memfd: %s; a pipe: %s; arenas, mmapped blocks and thread stacks are unattributed
      pagemap_scan_unusable: ioctl PAGEMAP_SCAN (Linux 6.7): %s; /proc/self/pagemap is as exact but slower
      pagemap_unusable: /proc/self/pagemap: %s; resident bytes are known only per mapping, and in a mapping of several
        owners, bytes without a certain owner are unattributed
      ractors_alive: other Ractors are alive and run during this reading: the Ruby rows are coarse
      stacks_unread: thread stacks: %s; they are unattributed
      type_unnamed: (unnamed)
      # Profiles that cannot be started, read or stopped.
      extension_absent: %s
      holders_unwatched: holders: true: %s: start the profile elsewhere, or without holders
      objects_crash: Ruby %s crashes when objects are sampled (Bug #19482): use Ruby 3.2.3 or later
      profile_ended: this %s has ended already, or another requester stopped it
      profile_not_running: no %s is running: start one first (%s.start)
      profile_not_shared: the running %s was not started on a page: only its starter can stop it
      profile_replaced: the malloc profile was stopped, but another one was started before it was read
      profile_running: %s %s is already running: stop it first (%s.stop)
      profile_unreadable: the %s could not be read: %s
      profile_unstarted: the %s could not be started: %s
      profile_unwatched: no thread could be started to end this %s: %s
      profile_without_room: no memory for a malloc profile
      profiler_crashes: this process was started without jemalloc's profiler, and %s
      profiler_no_hook: jemalloc's profiler records Ruby stacks only since 5.3.0; use the backend imports instead
      profiler_not_built: this jemalloc was built without its profiler (--enable-prof); use the backend imports instead
      profiler_off: this process was started without jemalloc's profiler: start it with `memscope exec --profile --
        COMMAND`, or with MALLOC_CONF=prof:true,prof_active:false; or use the backend imports, which needs no settings
      profiler_other: no jemalloc serves malloc here: start the process with `memscope exec --profile -- COMMAND`; or use
        the backend imports, which needs no settings
      measurement_running: a measurement is running in %s: it ends with its block; measure one block at a time
      objects_profiled: a profile of objects is running, which would be measured too: stop it first
        (Memscope::ObjectProfile.stop)
      objects_uncounted: objects cannot be counted: %s
      # The malloc profile.
      imports_measured: a measurement is running, which counts malloc by its imports; it ends with its block
      imports_taken: another copy of memscope, such as that of another Ruby::Box, profiles this process: stop its
        profile first
      coverage_contradicted: malloc's memory in use grew by %.1f MiB less than the samples say: older memory was freed, or
        blocks are freed by calls that this backend does not see
      freed_not_counted: jemalloc counts freed memory only with prof_accum:true in MALLOC_CONF, and then keeps all stacks
      growth_too_small: malloc's memory in use has grown by less than 16 samples stand for: too little to compare
      live_bytes_unknown: this allocator does not report its live memory
      profile_unread: %s (jemalloc writes its profile to a file in memory: this needs memfd_create, /proc/self/fd and no
        limit on the size of files, RLIMIT_FSIZE)
      # The profile of objects.
      collections_without_loss: Ruby called no hook for some garbage collections (%s), but no sample was dropped
      gc_hooks_slow_allocation: before Ruby 3.3, a running profile of objects makes every allocation slower, which the
        overhead leaves out: a loop that only allocates ran at three quarters of its speed (benchmark/object_profile.rb)
      jobs_taken: other extensions use all of Ruby's postponed jobs
      marks_unknown: this Ruby does not tell which objects a garbage collection has marked
      only_live_objects_sampled: a profile of objects does not count freed objects
      ractor_begins: a thread is creating a Ractor
      ractor_ended_counting: a Ractor was created meanwhile, and Ruby can crash when it counts objects beside Ractors:
        measure code that creates none
      ractor_ended_sampling: a Ractor was created, which ended the profile, since Ruby can crash when it samples beside
        Ractors: stop the profile, and start one when no other Ractor is alive
      ractor_unnoticed: a Ractor was created inside the handler of a TracePoint, where memscope cannot notice it in
        time: the samples are dropped
      ractors_unsampled: other Ractors are alive, and Ruby can crash when it samples objects beside them: start when
        they have ended
      ractors_unwatched: this Ruby crashes when a Ractor is created while objects are sampled (Bug #18464), and
        Ractor.new cannot be watched, because YJIT is enabled or Ractor.new is redefined; use Ruby 3.1.4 or later
      reach_cut: garbage collections were so far apart that objects allocated more than %s allocations after one were
        not sampled; the objects allocated earlier stand for them in the estimates
      samples_dropped: a lower bound: %s samples were dropped, for lack of room or because Ruby called no hook for some
        garbage collections
      texts_without_room: there was no room for the place, class or thread of %s samples, which count as [no room]
      windows_few: only %s windows of allocations were sampled so far, so the true error may be larger
      # A measurement.
      allocations_by_slot: a lower bound without the malloc memory of some objects: how they ended is unknown
      collections_unseen: no hook was called for some garbage collections, or memory ran out: what is alive is unknown
      garbage_of_all_threads: counts as freed what this thread's garbage collections freed for others, not the reverse
      imports_profiled: a malloc profile of the backend imports is running: stop it first (Memscope::MallocProfile.stop)
      data_by_slot: counts only the slots of T_DATA objects, such as Procs, that were garbage before they could be
        asked (%s)
      measured_in_parent: the block began in the process that this one was forked from
      objects_of_all_threads: counts the objects of all threads
      other_threads_left_out: objects that other threads allocated meanwhile are not counted (%s)
      thread_migrated: this Ruby thread began and ended the block on different native threads
      threads_uncounted: this allocator does not count what each thread allocates, nor can memscope: %s
      # Tags.
      tags_few_malloc_samples: unknown for tags without a sample in the malloc profile, or if it counts no freed memory
      tags_few_samples: unknown for tags with fewer than 10 samples
      tags_malloc_uncounted: only jemalloc counts what a thread allocates; else it needs Memscope::MallocProfile.start
      tags_unjudged: fewer than two full garbage collections have run since the profile of objects began
      tags_unset: no block of Memscope.tag has run (Memscope::RackTags calls it while a profile is running)
      tags_without_malloc_profile: no malloc profile is running (memscope profile --pid N, MallocProfile.start)
      tags_without_profile: no profile of objects is running (memscope profile --objects --pid N, ObjectProfile.start)
      # Levers and tuning.
      arenas_unused: %s of %s arenas are not in use yet; new arenas begin with new_arena_defaults
      background_threads_absent: this jemalloc was built without background threads
      background_threads_failed: jemalloc could not start its threads
      lever_of_glibc: only glibc has this lever
      lever_of_jemalloc: only jemalloc has this lever
      lever_of_page_heaps: only mimalloc and tcmalloc have this lever
      thread_cache_absent: this thread has no cache
      tuning_unsupported: only jemalloc can be tuned while it runs
    SENTENCES
    private_constant :SENTENCES

    class << self
      # @return [Hash{Symbol => String}]
      def table
        @table ||= SENTENCES.gsub(/\n {8}/, " ").scan(/^ {6}(\w+): (.*)/)
                            .to_h { |id, sentence| [id.to_sym, sentence.freeze] }.freeze
      end

      # @param reasons [Hash{Symbol => Object}] passing the same frozen Hash as in the last call costs nothing
      # @return [Hash{Symbol => String, nil}] frozen
      # @raise [KeyError] for an unknown id
      def sentences(reasons)
        from, to = @last
        return to if from.equal?(reasons)

        result = reasons.transform_values { |reason| sentence(reason) }.freeze
        @last = [reasons, result].freeze if reasons.frozen?
        result
      end

      # @param reason [Object]
      # @return [String, nil] frozen, valid UTF-8
      # @raise [KeyError] for an unknown id
      def sentence(reason)
        case reason
        when Symbol then table.fetch(reason)
        when Array then spelled(*reason).freeze
        when String then Field.text(reason)
        when Integer then reason.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",") # "45,649"
        else reason
        end
      end

      private

      def spelled(id, *arguments)
        return [id, *arguments].map { |item| sentence(item) }.join(", ") unless id.is_a?(Symbol)

        format(table.fetch(id), *arguments.map { |argument| sentence(argument) })
      end
    end
  end
  private_constant :Reasons

  # What this process cannot do or measure now.
  class Unavailable < StandardError
    # @return [Symbol] the id of the reason, as in Reading#reasons
    attr_reader :reason

    # @api private
    # @param reason [Symbol]
    # @param arguments [Array] of its sentence, as Reasons.sentence takes them
    def initialize(reason, *arguments)
      @reason = reason
      super(Reasons.sentence(arguments.empty? ? reason : [reason, *arguments]))
    end
  end
end
