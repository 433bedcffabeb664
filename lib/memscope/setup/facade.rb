# frozen_string_literal: true

%w[value/reading value/runtime value/notifications value/terms process/allocator process/snapshot process/cgroup
   process/process_memory process/ruby_heap process/ruby_heap/garbage
   process/ledger].each { |file| require_relative "../#{file}" }

# Where the memory of this Ruby process is.
#
# Reading calls change nothing, and do not raise if the system does not report a value: such a value is nil, and the
# reading's `reasons` explain it. The classes describe the results of the calls.
#
# rss, allocator, snapshot, ledger, ruby_heap, process_memory and cgroup work in a trap handler. Each other call loads a
# file when first called, such as Memscope::Arenas for arenas. Name it beforehand to make the call in a trap handler.
#
# Two calls change the process: purge, which returns memory to the kernel, and tune.
module Memscope
  Loading.register
  Runtime.current # made now: a trap handler cannot take its lock

  class << self
    # @!method rss
    #   The resident set size, from one read of /proc/self/statm. Tier T0.
    #   @return [Integer, nil] bytes, or nil without /proc

    # Which library serves malloc, proved by its behaviour. Tier T0.
    #
    # @return [Allocator]
    def allocator = Allocator.read

    # The totals that are cheap to read: those of statm, GC.stat and jemalloc. Tier T1, or T2 with `malloc`.
    #
    # @param malloc [Boolean] read glibc's totals too; mallinfo2 walks the free lists under arena locks, which takes
    #   tens of milliseconds in a large fragmented heap
    # @return [Snapshot]
    # @raise [ArgumentError] unless `malloc` is true or false
    def snapshot(malloc: false) = Snapshot.read(malloc: malloc)

    # Every resident page, by its proven owner or as unattributed. Tier T2.
    #
    # @param deep [Boolean] walk the chunks of glibc's malloc, to split its rows into in use, free, thread caches and
    #   top: 0.15 to 0.3 µs a chunk, without the GVL or malloc's locks. No effect under jemalloc
    # @param shared [Boolean] split each row into shared and private pages: 4 ms a GB
    # @param objects [Boolean] add the memory that objects hold through malloc: 11 ms a million objects, under the GVL
    # @param strict [Boolean] hold the GVL throughout, so that no Ruby thread changes memory during the scan
    # @param gc [Boolean] collect garbage first, as GC.start does, so that no garbage counts as in use. `collected` has
    #   the time that it took, and the memory that is no longer shared with other processes
    # @param garbage [Boolean] split live slots, and malloc's blocks in use, into reachable and garbage, without a
    #   collection: a forked child follows all references, 0.25 to 1 s a million objects, and the fork stops Ruby for
    #   12 ms per GB. Implies `deep` and `objects`. Memory of objects is then counted as malloc keeps it, not as objects
    #   report it
    # @return [Ledger]
    # @raise [ArgumentError] unless each option is true or false
    def ledger(deep: false, shared: false, objects: false, strict: false, gc: false, garbage: false)
      Ledger.read(deep: deep, shared: shared, objects: objects, strict: strict, gc: gc, garbage: garbage)
    end

    # Every mapping, with the ledger rows that own it. Tier T2.
    #
    # @return [Mappings]
    def mappings = Loading.unit(:Mappings).read

    # The allocator's arenas. Tier T1 under jemalloc, whose statistics are refreshed: 6.5 µs an arena. T2 under glibc,
    # where malloc_info walks the free lists under arena locks: 37 ms with 84,000 free blocks.
    #
    # @return [Arenas]
    def arenas = Loading.unit(:Arenas).read

    # The allocator's size classes: how full their slabs are. jemalloc only. Tier T1.
    #
    # @param arena [Integer, nil] the index of one arena, or nil for all arenas together
    # @return [SizeClasses]
    # @raise [ArgumentError] unless `arena` is nil or the index of an arena in use
    def size_classes(arena: nil) = Loading.unit(:SizeClasses).read(arena: arena)

    # malloc's fragmentation as named ratios, the free memory that a purge would return, and the memory that is stuck.
    # Tier T1 under jemalloc. T2 under glibc, whose chunks are walked.
    #
    # @return [Fragmentation]
    def fragmentation = Loading.unit(:Fragmentation).read

    # Pages and slots of Ruby's heap, and which pages compaction could empty. Tier T2: 9 to 16 ms for a million objects,
    # under the GVL. Runs the mark functions of C extensions, as a garbage collection does.
    #
    # @param collect [Boolean] collect all garbage first, as GC.start does, so that only live objects hold slots
    # @return [RubyHeap]
    # @raise [ArgumentError] when `collect` is neither true nor false
    def ruby_heap(collect: false) = RubyHeap.read(collect: collect)

    # How many objects Ruby's heap holds, of which class, and their bytes: internal objects and garbage included. Tier
    # T3: 5 to 12 ms for a million objects, under the GVL. Runs the size functions of C extensions, as
    # ObjectSpace.memsize_of_all does.
    #
    #   before = Memscope.census(gc: true)
    #   work
    #   (Memscope.census(gc: true) - before).by(:class).first(5)
    #
    # @param gc [Boolean] collect all garbage first, as GC.start does
    # @param private [Boolean] count only objects on pages that no other process shares: in a forked worker, those
    #   that became private since the fork. Reads 8 bytes of /proc/self/pagemap per page first, without the GVL
    # @return [Census] with rows by class, type, kind of internal objects, slot size and age
    # @raise [ArgumentError] unless `gc` and `private` are true or false
    def census(gc: false, private: false) = Loading.unit(:Census).read(gc: gc, private: private)

    # The objects that hold the memory of Ruby's heap: the memory that each class retains, the objects that retain most
    # with the paths to them, and the garbage. Tier T3: a forked child walks the heap, 1 to 3 seconds per million
    # objects, with 60 to 120 bytes of memory per object. The fork stops Ruby for 12 ms per GB, and a garbage collection
    # under way is finished first. With `in: :process`, the walk runs in this process, under the GVL. Runs the mark and
    # size functions of C extensions.
    #
    #   puts Memscope.heap_graph(paths_to: "Order")
    #
    # @param options [Hash{Symbol => Object}] `top` (20): rows of each list, up to 1,000; `paths_to` (nil): a Class or
    #   Module (for its instances), a String that names a class, or one object; nil: the objects in which memory
    #   has accumulated; `strings` (false): whether to look for Strings with the same content; `in` (:fork): :fork or
    #   :process; `deadline` (60): seconds that a child may take
    # @return [HeapGraph]
    # @raise [ArgumentError] for an unknown option or an invalid value
    def heap_graph(**options) = Loading.unit(:HeapGraph).take(**options)

    # The kernel's figures for this process: PSS, USS, swap. Tier T2.
    #
    # @return [ProcessMemory]
    def process_memory = ProcessMemory.read

    # The container's limit and its usage. Tier T1.
    #
    # @return [Cgroup]
    def cgroup = Cgroup.read

    # Every process of this Puma cluster, as each last reported itself. Without `plugin :memscope` in config/puma.rb
    # only this process. Tier T2 before the first report, else T0. A Puma worker gets the answer of its master, by one
    # call.
    #
    # @return [Workers]
    def workers = Loading.unit(:Workers).read

    # How the memory of this process has changed, by series, since History.start. Tier T1.
    #
    # @return [History]
    def history = Loading.unit(:History).read

    # Judges whether the memory of this process is growing: a leak, a step, a cache that fills, not at all, or too early
    # to judge. The verdict has the layer, the speed, the time until the limit, and the remedy. The history is judged
    # every five minutes. Tier T1 before the first judgement, else T0.
    #
    #   puts Memscope.verdict.sentence
    #
    # @param now [Boolean] judge now. With a history of several days, this takes some milliseconds
    # @return [Verdict]
    # @raise [ArgumentError] unless `now` is true or false
    def verdict(now: false) = Loading.unit(:History).verdict(now: now)

    # How a process ended, and its memory at its last second, by its black box. Tier T1, more for many boxes.
    #
    #   puts Memscope.postmortem
    #
    # @param which [String, Integer, nil] the path of a black box, or of a directory of them; the pid that the process
    #   had; nil for the directory that processes use by default
    # @return [Postmortem, nil] of the process that ended last, nil if there is none
    # @raise [ArgumentError] for anything else, or a file that is not the black box of a process
    # @raise [Unavailable] if the file cannot be read
    # @raise [SystemCallError] if the directory cannot be read
    def postmortem(which = nil) = Loading.unit(:Boxes).postmortem(which)

    # The problems of this process's memory, with remedies. Tier T3. Changes nothing, and runs no GC unless `gc` is
    # true.
    #
    # @param since [Diagnosis, nil] an earlier diagnosis (Diagnosis.from_json reads one): adds findings about growth
    #   since then
    # @param gc [Boolean] collect garbage first, as GC.start does: only then is it known that memory in use is not
    #   garbage
    # @return [Diagnosis]
    # @raise [ArgumentError] if `since` is not a diagnosis, or is of another process; or unless `gc` is true or false
    def doctor(since: nil, gc: false) = Loading.unit(:Doctor).read(since: since, gc: gc)

    # The allocator's settings, their problems, and a recommendation for this process. Tier T2.
    #
    # @return [Lint]
    def lint = Loading.unit(:Lint).read

    # Returns memory to the kernel, and reports how much. Tier T3. Checks all arguments before it changes anything.
    #
    # @param levers [Array<Symbol>] some of Purge::LEVERS, which explains each. They run in the order of that list. By
    #   default those that this process supports, without :gc and :compact where they would stop Ruby for more than
    #   Purge::MAX_PAUSE_MS, or make memory private that other processes share: see Purge::Result#left_out
    # @param dry_run [Boolean] predict only, and change nothing
    # @param gc [Boolean] for a dry run: collect garbage first, so that the prediction is about the memory that then
    #   remains. A purge has the lever :gc instead
    # @return [Purge::Result]
    # @raise [ArgumentError] for an unavailable lever, or another invalid argument
    # @raise [Purge::Busy] when another thread of this process purges or tunes
    def purge(*levers, dry_run: false, gc: false) = Loading.unit(:Purge).run(levers, dry_run: dry_run, gc: gc)

    # By Ruby line, the malloc memory allocated in any thread while the block ran, and still live when it ends.
    #
    #   puts Memscope.malloc_profile(backend: :imports) { Report.render }
    #
    # Takes the options `rate` and `backend` of MallocProfile.start.
    #
    # @yield
    # @return [Profile]
    # @raise [ArgumentError] for an invalid rate or backend, or without a block
    # @raise [Unavailable] if a profile is already running, or this process cannot be profiled
    def malloc_profile(...) = Loading.unit(:MallocProfile).record(...)

    # By Ruby line, the objects allocated in any thread while the block ran, and still alive when it ends.
    #
    #   puts Memscope.object_profile { Report.render }
    #
    # Takes the option `budget` of ObjectProfile.start.
    #
    # @yield
    # @return [Profile]
    # @raise [ArgumentError] for an invalid option, or without a block
    # @raise [Unavailable] if a profile of objects is already running, or cannot run here
    def object_profile(...) = Loading.unit(:ObjectProfile).record(...)

    # The memory that the block allocates, and how much of it remains: objects by class and line, malloc memory, rows of
    # the ledger, the peak of RSS. Tier T3: collects all garbage before the block and after it, and reads two ledgers;
    # while the block runs, each allocation takes 0.1 to 0.3 µs more. Lowers VmHWM to the current RSS, if the kernel
    # allows that.
    #
    #   puts Memscope.measure { Report.render }
    #
    # @yield
    # @return [Measurement] whose `value` is the block's
    # @raise [ArgumentError] without a block
    # @raise [Unavailable] within another measurement of this process, in any thread, or while a profile of
    #   objects runs
    def measure(...) = Loading.unit(:Measurement).take(...)

    # Tags the allocations of this fiber in the block, for Memscope.tags and for profiles: `Profile#by(:tag)`. Tags
    # nest, and the innermost counts. Costs well under a microsecond, with or without a profile.
    #
    # Each fiber has its own tag. A fiber that is first resumed within the block, such as an Enumerator's or an Async
    # task's, inherits the tag and keeps it after the block. A thread that is started within the block has no tag.
    #
    #   Memscope.tag("checkout") { process(order) }
    #
    # @param name [String, Symbol] at most 64 bytes. Use few different names: a process has room for 4,096, and further
    #   names count as "[overflow]"
    # @yield
    # @return [Object] the block's value
    # @raise [ArgumentError] for an invalid name, or without a block
    def tag(name, &)
      Loading.unit(:MallocProfile) if autoload?(:MallocProfile)
      MallocProfile.tag(name, &)
    end

    # The memory that the runs of each tag, such as the requests of an endpoint, allocate and retain. Tier T2: a running
    # profile of objects measures its sampled objects, under the GVL. A running malloc profile is read too.
    #
    #   puts Memscope.tags
    #
    # @return [Tags]
    def tags = Loading.unit(:Tags).read

    # Sets decay times and background threads of jemalloc at run time. nil leaves a setting unchanged, and without
    # arguments the call only reads. Tier T1, but setting a decay time may purge unused pages now, which is slow.
    # The decay times are those of all arenas, and of those that are created later.
    #
    # @param dirty_decay_ms [Integer, nil] milliseconds after which unused dirty pages are purged: 0 immediately, -1
    #   never
    # @param muzzy_decay_ms [Integer, nil] milliseconds after which muzzy pages are returned: 0 immediately, -1 never
    # @param background_thread [Boolean, nil] whether jemalloc's own threads purge, even while the program sleeps. A
    #   forked child has no such threads until it sets this itself
    # @return [Tuning] with the values before and after
    # @raise [ArgumentError] for a value out of range; and, unless jemalloc serves malloc, for any argument other than
    #   nil
    # @raise [Purge::Busy] while another thread of this process purges or tunes
    def tune(...) = Loading.unit(:Tuning).apply(...)

    # Changes how memscope's surfaces behave. If the block raises, nothing changes. With the setting `listen`, this
    # process listens from then on or, in Rails, once the application is initialized.
    #
    #   Memscope.configure do |c|
    #     c.username = "memory"
    #     c.password = ENV.fetch("MEMORY_PASSWORD")
    #   end
    #
    # @yieldparam c [Configuration::Builder] with a writer and a reader for each of Configuration::SETTINGS
    # @return [nil]
    # @raise [ArgumentError] for an unknown setting, or an invalid value of a setting or an environment variable
    # @raise [Configuration::Late] once the configuration is in use
    def configure(&)
      Loading.unit(:Configuration).change(&)
      Listener.boot("listen") if Configuration.so_far.listen && !const_defined?(:Railtie, false)
      nil
    end

    # How memscope's surfaces behave. The first call in a process makes the configuration final.
    #
    # @return [Configuration]
    # @raise [ArgumentError] for an invalid value of an environment variable. In Rails, the log gets a warning instead
    def configuration = Loading.unit(:Configuration).current

    # Lets other processes of this user, and of root, read, profile and purge this one: `memscope report --pid N`,
    # `doctor`, `profile`, `purge`, `top` and `ps`. Opens a Unix socket, PID.sock in a directory that no other user can
    # enter, and starts a thread. While it runs, Ruby does not detect deadlocks of the program's threads. Forked
    # children have a socket and a thread of their own. Does nothing if this process listens already.
    #
    # MEMSCOPE_LISTEN=1 in the environment does the same when memscope is loaded.
    #
    # @param path [String, nil] the socket's absolute path. nil: the default path, where other processes look for it.
    #   Forked children have their sockets in the same directory
    # @return [Listener]
    # @raise [ArgumentError] unless `path` is nil or an absolute path
    # @raise [Listener::Refused] if the path, or its directory, cannot be used or trusted
    def listen(path: nil) = Loading.unit(:Listener).listen(path)

    # Writes a heap dump for other tools, without the objects' contents. See Dump. Tier T3: a forked child writes about
    # a million objects a second, and needs 90 bytes for each slot of the heap. This thread waits for the child. Other
    # threads run, and each page that they write to in the meantime is copied.
    #
    # @param path [String] of a file that does not exist yet. Only this user may read it
    # @param format [Symbol] one of Dump::FORMATS
    # @param gc [Boolean] collect garbage first, as GC.start does. Otherwise the dump has garbage too, as unreachable
    #   objects
    # @param deadline [Numeric] seconds after which the child is ended
    # @return [Dump]
    # @raise [ArgumentError] for an unknown format or another invalid argument
    # @raise [SystemCallError] if the file exists already, and is then left as it is; or if it cannot be written in
    #   full, and is then removed
    # @raise [Dump::Failed] if the heap cannot be read, or there is no room for the child
    def dump(path, format: :perfetto, gc: false, deadline: 60)
      Loading.unit(:Dump).write(path, format: format, gc: gc, deadline: deadline)
    end

    # Prints the ledger for people. Tier T2.
    #
    # @param io [IO, #write]
    # @param options [Hash] the options of `ledger`
    # @return [nil]
    # @raise [ArgumentError] if `io` cannot be written to, or for an invalid option of `ledger`
    def report(io = $stdout, **options) = Loading.unit(:Report).print(ledger(**options), io)

    # Loads the files that memscope otherwise loads on first use. This is called when a server boots: in Rails by the
    # railtie (with `eager_load`), elsewhere by Memscope::Web, RackTags, SidekiqTags and Puma's plugin.
    #
    # @return [void]
    def eager_load!
      Loading.whole do
        require "json"
        Loading.everything
      end
    end

    # @return [Boolean] whether memscope's extension is loaded
    def supported? = unsupported_reason.nil?

    # @return [String, nil] why the extension is not loaded, or nil if it is
    def unsupported_reason = Native.absence
  end

  class Reading
    # The changes since an earlier reading. Loads Diff when first used.
    #
    # @param other [Reading] the earlier one
    # @return [Diff]
    # @raise [TypeError] for a reading of another kind
    def -(other) = Loading.unit(:Diff).between(of_this_kind(other), self)

    # Loads Report when first used.
    #
    # @param options [Hash] those of the report for this kind of reading; `unicode: false` for plain ASCII, the default
    #   if the locale is not UTF-8
    # @return [String] text for people, 80 columns, or `inspect` for a kind that has no report
    def to_s(**options)
      Loading.unit(:Report).render(self, unicode: Encoding.default_external == Encoding::UTF_8, **options)
    end

    private

    def flame_graph(back) = Loading.unit(:Report).flame_graph(self, back: back)
  end
end
