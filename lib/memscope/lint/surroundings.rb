# frozen_string_literal: true

require "etc"
require_relative "../reading"

module Memscope
  class Lint < Reading
    # What an allocator's settings have to fit, and the doctor's rules: the processors, the container, the kernel's huge
    # pages, and how the process itself came about.
    class Surroundings < Record
      # Of the flags in /proc/PID/stat: forked, and no exec since (PF_FORKNOEXEC in the kernel's sched.h).
      FORKED = 0x40
      private_constant :FORKED

      # @!attribute [r] cpus
      #   @return [Integer] that this process may run on: what allocators count
      field :cpus, :count, null: false
      # @!attribute [r] cpu_limit
      #   @return [Float, nil] CPUs' time that the cgroup's quota allows; nil without one
      field :cpu_limit, :number
      # @!attribute [r] memory_limit_bytes
      #   @return [Integer, nil] of the cgroup; nil without one
      field :memory_limit_bytes, :bytes
      # @!attribute [r] threads
      #   @return [Integer, nil] of the kernel's, Ruby's among them
      field :threads, :count
      # @!attribute [r] ractors
      #   @return [Integer] each has a lock of its own, under which one of its threads runs Ruby
      field :ractors, :count, null: false
      # @!attribute [r] forked?
      #   @return [Boolean, nil] whether the process was forked and has run no other program since: a server's worker
      field :forked, :boolean
      # @!attribute [r] forks?
      #   @return [Boolean, nil] whether it has such children: a server's master
      field :forks, :boolean
      # @!attribute [r] parent_pid
      #   @return [Integer]
      field :parent_pid, :count, null: false
      # @!attribute [r] started
      #   @return [Integer, nil] when the process did, in clock ticks since boot: with the pid it names the process
      field :started, :count
      # @!attribute [r] cpu_seconds
      #   @return [Float, nil] CPU time of all its threads; a fork begins at 0
      field :cpu_seconds, :number
      # @!attribute [r] yjit?
      #   @return [Boolean] whether YJIT is on
      field :yjit, :boolean, null: false
      # @!attribute [r] environment
      #   @return [Hash{Symbol => String}] DYNO, Heroku's name for a container, and LD_PRELOAD as it was when memscope
      #     was loaded: a program may set it for its children. No other variables are looked at
      field :environment, :hash, null: false
      # @!attribute [r] thp_mode
      #   @return [String, nil] the system's transparent huge pages: "always", "madvise" or "never"; nil without any
      field :thp_mode, :string
      # @!attribute [r] thp_gaps
      #   @return [Integer, nil] how many pages the kernel fills in to make a huge one (khugepaged's max_ptes_none)
      field :thp_gaps, :count
      # @!attribute [r] thp_enabled?
      #   @return [Boolean, nil] whether this process may get them; CRuby turns them off for itself
      field :thp_enabled, :boolean

      class << self
        # @param cgroup [Cgroup]
        # @param proc_root [String] what stands for /proc
        # @param sys_root [String] what stands for /sys
        # @return [Surroundings]
        def read(cgroup, proc_root: "/proc", sys_root: "/sys")
          capture({ cpus: Etc.nprocessors, cpu_limit: cgroup.cpu_limit, memory_limit_bytes: cgroup.limit_bytes,
                    ractors: defined?(Ractor) ? Ractor.count : 1, yjit: yjit?, parent_pid: Process.ppid,
                    cpu_seconds: Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID),
                    environment: environment, forks: any_fork(proc_root),
                    **of_process("#{proc_root}/self"), **of_huge_pages("#{sys_root}/kernel/mm/transparent_hugepage") })
        end

        private

        def environment
          { DYNO: ENV.fetch("DYNO", nil), LD_PRELOAD: Native.environment_at_load("LD_PRELOAD") }.compact
        end

        def yjit? = (defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?) || false

        def of_process(directory)
          status = text("#{directory}/status").to_s
          fields = stat("#{directory}/stat")
          thp = status[/^THP_enabled:\s*(\d)/, 1]
          { threads: status[/^Threads:\s*(\d+)/, 1]&.to_i, thp_enabled: thp && thp == "1",
            forked: forked?(fields), started: fields[19]&.to_i }
        end

        def of_huge_pages(directory)
          { thp_mode: text("#{directory}/enabled")&.slice(/\[(\w+)\]/, 1),
            thp_gaps: text("#{directory}/khugepaged/max_ptes_none")&.to_i }
        end

        def text(path)
          File.read(path)
        rescue SystemCallError
          nil
        end

        # The fields behind the command's name, which may hold spaces and brackets: state, ppid, …
        def stat(path) = text(path).to_s.rpartition(")").last.split

        def forked?(fields) = fields[6]&.to_i&.anybits?(FORKED)

        # nil where the kernel does not list children (CONFIG_PROC_CHILDREN).
        def any_fork(proc_root)
          lists = Dir.glob("#{proc_root}/self/task/*/children").filter_map { |path| text(path) }
          lists.flat_map(&:split).any? { |pid| forked?(stat("#{proc_root}/#{pid}/stat")) } unless lists.empty?
        end
      end

      # @return [Integer] how many threads can run at the same time: the CPUs, or fewer where a quota allows less
      def parallel = [[cpus, cpu_limit&.ceil].compact.min, 1].max

      # @return [Integer] how many arenas serve this process: one for the thread that holds a Ractor's lock, and one for
      #   those that allocate without it; never more than can run at the same time
      def arenas = [ractors + 1, parallel].min

      # @return [Boolean] whether settings of the environment meet a fork
      def forking? = forked? || forks? || false

      # @return [Boolean] whether memory can become huge pages without being asked for
      def thp_always? = thp_mode == "always" && thp_enabled? != false

      # @return [String] for people
      def processors
        return "#{cpus} CPU#{'s' unless cpus == 1}" unless cpu_limit && cpu_limit < cpus

        "#{format('%g', cpu_limit)} of #{cpus} CPUs by the cgroup's quota"
      end
    end
  end
end
