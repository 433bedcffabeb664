# frozen_string_literal: true

require "tmpdir"
require_relative "facade"

module Memscope
  # What the kernel tells of another process, which need not know of memscope: how much is resident, how much of that is
  # its own, which libraries with a malloc it has mapped, and its cgroup. It is a view from outside: where the memory is
  # in malloc and in Ruby, and which malloc serves it, only the process itself can tell (Memscope.listen, Client).
  class Outside < Reading
    # A library with a malloc that the process has mapped.
    class Library < Record
      # @!attribute [r] name
      #   @return [Symbol] :jemalloc, :mimalloc, :tcmalloc, :musl or :glibc
      field :name, :symbol, null: false
      # @!attribute [r] path
      #   @return [String]
      field :path, :string, null: false
      # @!method preloaded?
      #   @return [Boolean, nil] whether LD_PRELOAD or ld.so.preload names it; nil where neither may be read
      field :preloaded, :boolean
    end

    # @!attribute [r] command
    #   @return [String, nil] its command line, or what it has put there; of a process that is ending, its name
    field :command, :string
    # @!attribute [r] uid
    #   @return [Integer] its effective user
    field :uid, :count, null: false
    # @!method runs_ruby?
    #   @return [Boolean] whether its program is a ruby
    field :runs_ruby, :boolean, null: false
    # @!method listens?
    #   @return [Boolean] whether it would answer a Client of this user
    field :listens, :boolean, null: false
    # @!attribute [r] rss_bytes
    #   @return [Integer, nil] resident pages, shared ones in full (Rss)
    field :rss_bytes, :bytes
    # @!attribute [r] peak_rss_bytes
    #   @return [Integer, nil] the highest RSS so far (VmHWM)
    field :peak_rss_bytes, :bytes
    # @!attribute [r] pss_bytes
    #   @return [Integer, nil] each resident page divided by the number of processes that map it (Pss)
    field :pss_bytes, :bytes
    # @!attribute [r] uss_bytes
    #   @return [Integer, nil] pages that this process alone maps: Private_Clean + Private_Dirty
    field :uss_bytes, :bytes
    # @!attribute [r] shared_bytes
    #   @return [Integer, nil] pages that another process maps too: Shared_Clean + Shared_Dirty
    field :shared_bytes, :bytes
    # @!attribute [r] anonymous_bytes
    #   @return [Integer, nil] resident pages without a file: heaps and stacks (RssAnon)
    field :anonymous_bytes, :bytes
    # @!attribute [r] file_bytes
    #   @return [Integer, nil] resident pages of files (RssFile)
    field :file_bytes, :bytes
    # @!attribute [r] shared_memory_bytes
    #   @return [Integer, nil] resident pages of shared memory and tmpfs (RssShmem)
    field :shared_memory_bytes, :bytes
    # @!attribute [r] swap_bytes
    #   @return [Integer, nil] swapped out (VmSwap)
    field :swap_bytes, :bytes
    # @!attribute [r] virtual_bytes
    #   @return [Integer, nil] address space (VmSize)
    field :virtual_bytes, :bytes
    # @!attribute [r] threads
    #   @return [Integer, nil] of the kernel's
    field :threads, :count
    # @!attribute [r] mallocs
    #   @return [Array<Library>] in the order of their addresses; one that is linked into the program is not seen
    field :mallocs, [Library], null: false
    # @!attribute [r] variables
    #   @return [Hash{Symbol => String}, nil] which settings of mallocs its environment had when it was started
    field :variables, :hash
    # @!attribute [r] cgroup
    #   @return [Cgroup, nil] its memory cgroup; nil where that was not asked for
    field :cgroup, Cgroup

    require_relative "outside/files"

    # Reads it. Tier T2: the kernel walks the process's page tables for PSS and USS, milliseconds per GB.
    #
    # @param pid [Integer]
    # @param cgroup [Boolean] whether to read its cgroup too
    # @return [Outside]
    # @raise [ArgumentError] unless the pid can be one
    # @raise [Client::Unreachable] where there is no such process
    def self.read(pid, cgroup: true)
      since = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
      client = Client.new(pid)
      client.check
      files = Files.new(pid)
      envelope = { memscope: VERSION, ruby: RUBY_VERSION, pid: pid,
                   at: Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond) }
      body = files.body.update(listens: client.listens?, cgroup: (files.cgroup(envelope) if cgroup))
      wall = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - since
      capture(body.update(cost: { tier: :T2, wall_us: wall, gvl_us: wall, scratch_bytes: 0 }), envelope)
    end

    # @return [Array<Integer>] the processes whose program is a ruby, as far as that can be seen
    def self.rubies
      Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i).select { |pid| Files.new(pid).runs_ruby? }.sort
    end

    # @api private
    # @return [Boolean] whether anything could be read
    def known? = !rss_bytes.nil?
  end
end
