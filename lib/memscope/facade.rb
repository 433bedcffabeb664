# frozen_string_literal: true

require_relative "version"
require_relative "native"
require_relative "reading"
require_relative "allocator"
require_relative "snapshot"
require_relative "ledger"
require_relative "ruby_heap"
require_relative "process_memory"
require_relative "cgroup"

# Where the memory of this Ruby process is.
#
# The calls below read; they change nothing, take no lock and raise nothing for what the system will not say: such a
# value is nil, and the reading's `reasons` say why. They work in a trap handler. Tables of what each returns are with
# the classes.
#
# Two of them change the process: purge, which gives memory back, and tune.
module Memscope
  autoload :Client, File.join(__dir__, "client.rb")
  autoload :Configuration, File.join(__dir__, "configuration.rb")
  autoload :Diff, File.join(__dir__, "diff.rb")
  autoload :Arena, File.join(__dir__, "arenas.rb")
  autoload :Arenas, File.join(__dir__, "arenas.rb")
  autoload :SizeClass, File.join(__dir__, "size_classes.rb")
  autoload :SizeClasses, File.join(__dir__, "size_classes.rb")
  autoload :Fragmentation, File.join(__dir__, "fragmentation.rb")
  autoload :Diagnosis, File.join(__dir__, "diagnosis.rb")
  autoload :Doctor, File.join(__dir__, "doctor.rb")
  autoload :Finding, File.join(__dir__, "diagnosis.rb")
  autoload :Lint, File.join(__dir__, "lint.rb")
  autoload :Listener, File.join(__dir__, "remote/server.rb")
  autoload :MallocProfile, File.join(__dir__, "malloc_profile.rb")
  autoload :Mapping, File.join(__dir__, "mappings.rb")
  autoload :Mappings, File.join(__dir__, "mappings.rb")
  autoload :Metrics, File.join(__dir__, "metrics.rb")
  autoload :ExternalProcess, File.join(__dir__, "remote/external_process.rb")
  autoload :Profile, File.join(__dir__, "profile.rb")
  autoload :Prometheus, File.join(__dir__, "prometheus.rb")
  autoload :Purge, File.join(__dir__, "purge.rb")
  autoload :RackTags, File.join(__dir__, "rack_tags.rb")
  autoload :SidekiqTags, File.join(__dir__, "sidekiq_tags.rb")
  autoload :Tuning, File.join(__dir__, "tuning.rb")
  autoload :Web, File.join(__dir__, "web.rb")
  autoload :Worker, File.join(__dir__, "workers.rb")
  autoload :Workers, File.join(__dir__, "workers.rb")

  class << self
    # @!method rss
    #   The resident set, from one read of /proc/self/statm. Tier T0.
    #   @return [Integer, nil] bytes; nil where the kernel will not say

    # Which library serves malloc, shown by behaviour. Tier T0.
    #
    # @return [Allocator]
    def allocator = Allocator.read

    # The totals that are cheap to read: statm, GC.stat, jemalloc's. Tier T1; T2 with `malloc`.
    #
    # @param malloc [Boolean] glibc's totals too; mallinfo2 walks the free lists under the arenas' locks, tens of
    #   milliseconds in a large fragmented heap
    # @return [Snapshot]
    # @raise [ArgumentError] unless `malloc` is true or false
    def snapshot(malloc: false) = Snapshot.read(malloc: malloc)

    # Every resident page, by its proven owner. Tier T2.
    #
    # @param deep [Boolean] walk the chunks of glibc's malloc, so that its rows are split into in use, free, thread
    #   caches and top: 0.15 to 0.3 µs a chunk, without the GVL or its locks. Nothing to add under jemalloc
    # @param shared [Boolean] split each row into what other processes share and what is private: 4 ms a GB
    # @param objects [Boolean] ask every object what it holds through malloc: 11 ms a million objects, under the GVL
    # @param strict [Boolean] hold the GVL throughout, so that no Ruby thread changes memory during the scan
    # @return [Ledger]
    # @raise [ArgumentError] unless each of them is true or false
    def ledger(deep: false, shared: false, objects: false, strict: false)
      Ledger.read(deep: deep, shared: shared, objects: objects, strict: strict)
    end

    # Every mapping, with the ledger rows that own it. Tier T2. Loads memscope/mappings when first used; require that
    # beforehand where it is to be called in a trap handler.
    #
    # @return [Mappings]
    def mappings = Mappings.read

    # The allocator's arenas. Tier T1 under jemalloc, whose statistics are refreshed: 6.5 µs an arena. T2 under glibc,
    # where malloc_info walks the free lists under the arenas' locks: 37 ms with 84,000 free blocks. Loads
    # memscope/arenas when first used.
    #
    # @return [Arenas]
    def arenas = Arenas.read

    # The allocator's size classes: how full their slabs are. jemalloc only. Tier T1. Loads memscope/size_classes when
    # first used.
    #
    # @param arena [Integer, nil] of one arena; nil for all of them together
    # @return [SizeClasses]
    # @raise [ArgumentError] unless `arena` is nil or the index of an arena in use
    def size_classes(arena: nil) = SizeClasses.read(arena: arena)

    # Ratios of what to what, and what of malloc's free memory can come back how. Tier T2: Ruby's heap is walked as
    # ruby_heap does; under glibc malloc's chunks are too. Loads memscope/fragmentation when first used.
    #
    # @return [Fragmentation]
    def fragmentation = Fragmentation.read

    # Pages and slots of Ruby's heap, and what compaction could empty of them. Tier T2: 9 to 16 ms for a million
    # objects, with the GVL held. Runs the mark functions of C extensions, as a garbage collection does.
    #
    # @param collect [Boolean] collect all garbage first, as GC.start does: live slots are then those of live objects
    # @return [RubyHeap]
    # @raise [ArgumentError] when `collect` is neither true nor false
    def ruby_heap(collect: false) = RubyHeap.read(collect: collect)

    # What the kernel accounts to this process: PSS, USS, swap. Tier T2.
    #
    # @return [ProcessMemory]
    def process_memory = ProcessMemory.read

    # The container's limit and what counts against it. Tier T1.
    #
    # @return [Cgroup]
    def cgroup = Cgroup.read

    # Every process of the Puma cluster that this one is of, as each last reported itself; without `plugin :memscope` in
    # config/puma.rb only this process. Tier T2 where that has taken no reading of itself yet, else T0; in a worker of
    # Puma's a call to the master. Loads memscope/workers when first used.
    #
    # @return [Workers]
    def workers = Workers.read

    # What is wrong with the memory of this process, and what helps. Tier T2; nothing is changed, no GC is run. Loads
    # memscope/doctor when first used; require that beforehand where it is to be called in a trap handler.
    #
    # @param since [Diagnosis, Hash, String, nil] an earlier one, or its `to_h` or JSON: with it, growth is judged too
    # @return [Diagnosis]
    # @raise [ArgumentError] when `since` is no diagnosis
    def doctor(since: nil) = Doctor.diagnose(Diagnosis::Evidence.read, since: since)

    # How the allocator is set, what is wrong with that, and what would suit this process. Tier T2. Loads memscope/lint
    # when first used.
    #
    # @return [Lint]
    def lint = Lint.read

    # Gives memory back to the kernel, and says how much that was. Tier T3. Loads memscope/purge when first used.
    #
    # All arguments are checked before anything is done.
    #
    # @param levers [Array<Symbol>] of Purge::LEVERS, where each is explained, and pulled in that order; by default all
    #   that this process has
    # @param arena [Integer, nil] one of jemalloc's arenas, for :decay and :purge; nil for all
    # @param dry_run [Boolean] predict only, and change nothing
    # @param settle [Numeric] seconds after which it is looked whether it stayed down; a dry run does not wait
    # @return [Purge::Result]
    # @raise [ArgumentError] for a lever that is not there, an arena out of range, or another wrong argument
    # @raise [Purge::Busy] when another thread of this process purges or tunes
    def purge(*levers, arena: nil, dry_run: false, settle: 0)
      Purge.run(levers, arena: arena, dry_run: dry_run, settle: settle)
    end

    # Which lines of Ruby allocated what malloc holds when the block ends, of what was allocated in it, in any thread.
    # Loads memscope/malloc_profile when first used.
    #
    #   puts Memscope.malloc_profile(backend: :imports) { Report.render }
    #
    # @param options [Hash] those of MallocProfile.start: `rate` and `backend`
    # @yield
    # @return [Profile]
    # @raise [ArgumentError] for another rate or backend, or without a block
    # @raise [MallocProfile::Unavailable] where a profile runs already, or this process cannot have one
    def malloc_profile(...) = MallocProfile.record(...)

    # Marks what this fiber allocates in the block, for the malloc profile: `Profile#by(:tag)`. Tags nest; the inner
    # one counts. Costs well under a microsecond, whether a profile runs or not.
    #
    # Other fibers that run meanwhile have their own tags. One that is resumed for the first time within the block, as
    # that of an Enumerator or an Async task, takes its tag over and keeps it, also after the block. A thread that is
    # started there begins without one.
    #
    #   Memscope.tag("checkout") { process(order) }
    #
    # @param name [String, Symbol] of at most 64 bytes, and one of few: a process has room for 4,096, and what finds
    #   none is of the tag "[overflow]"
    # @yield
    # @return [Object] the block's value
    # @raise [ArgumentError] for another name, or without a block
    def tag(name, &) = MallocProfile.tag(name, &)

    # Sets decay times and background threads of jemalloc while it runs; what is nil stays as it is, and without
    # arguments it only reads. Tier T1; but setting a decay time may give back what is unused now, which takes long.
    # Loads memscope/tuning when first used.
    #
    # @param arena [Integer, nil] whose decay times; nil for all arenas, and those that are made later
    # @param dirty_decay_ms [Integer, nil] milliseconds after which unused dirty pages are given up; 0 at once, -1 never
    # @param muzzy_decay_ms [Integer, nil] and after which the kernel gets back those that it may take already
    # @param background_thread [Boolean, nil] whether threads of jemalloc's do that, while the program's sleep. A forked
    #   child has none until it sets this itself
    # @return [Tuning] with the values before and after
    # @raise [ArgumentError] for a value or an arena out of range, and for any but nil unless jemalloc serves malloc
    # @raise [Purge::Busy] when another thread of this process purges or tunes
    def tune(arena: nil, dirty_decay_ms: nil, muzzy_decay_ms: nil, background_thread: nil)
      Tuning.apply(arena: arena, dirty_decay_ms: dirty_decay_ms, muzzy_decay_ms: muzzy_decay_ms,
                   background_thread: background_thread)
    end

    # Changes how memscope's surfaces behave; what is not set stays as it is. Where the block raises nothing changes.
    # With the setting `listen` this process listens from then on; in Rails once the application is initialized.
    #
    #   Memscope.configure do |c|
    #     c.username = "memory"
    #     c.password = ENV.fetch("MEMORY_PASSWORD")
    #   end
    #
    # @yieldparam c [Configuration::Builder] with a writer and a reader for each of Configuration::SETTINGS
    # @return [nil]
    # @raise [ArgumentError] for an unknown setting, a wrong value, or a wrong value of an environment variable
    # @raise [Configuration::Late] when the configuration is in use
    def configure(&)
      Configuration.change(&)
      Listener.boot("listen") if Configuration.so_far.listen && !const_defined?(:Railtie, false)
      nil
    end

    # How memscope's surfaces behave. It is settled by the first call in a process.
    #
    # @return [Configuration]
    # @raise [ArgumentError] for a wrong value of an environment variable; the railtie makes it a warning in the log
    def configuration = Configuration.current

    # Lets other processes of this user, and root, read this one and purge it: `memscope report --pid N`, `doctor`,
    # `purge`, `top` and `ps`. It has a Unix socket for them, PID.sock in a directory that nobody else can enter, and a
    # thread, with which Ruby does not notice when all threads of the program wait for each other. Forked children get
    # their own. Does nothing where this process listens already.
    #
    # MEMSCOPE_LISTEN=1 in the environment does the same when memscope is loaded.
    #
    # @param path [String, nil] of the socket, absolute, where it is not to be the one that others look for. Children
    #   have theirs beside it
    # @return [Listener]
    # @raise [ArgumentError] when `path` is no absolute path
    # @raise [Listener::Refused] where the path, or its directory, cannot be used or trusted
    def listen(path: nil) = Listener.listen(path)

    # Prints the ledger for people. Tier T2. Loads memscope/report when first used; require that beforehand where it
    # is to be called in a trap handler.
    #
    # @param io [IO, #write] where to
    # @param options [Hash] those of ledger
    # @return [nil]
    # @raise [ArgumentError] when `io` cannot be written to, or for an option as ledger does
    def report(io = $stdout, **options)
      require_relative "report"
      Report.print(ledger(**options), io)
    end

    # @return [Boolean] whether memscope's extension is there
    def supported? = unsupported_reason.nil?

    # @return [String, nil] why it is not
    def unsupported_reason = Native.absence
  end
end
