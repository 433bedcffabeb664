# frozen_string_literal: true

require "etc" # for OwnRuby

module Memscope
  Record.declare(__FILE__)

  # The facts that an allocator's settings have to fit, and that the doctor's rules look at: the processors, the
  # container, the kernel's huge pages, and how the process was started.
  class HostEnvironment < Record
    # In the flags of /proc/PID/stat: forked, and no exec since (PF_FORKNOEXEC in the kernel's sched.h).
    FORKED = 0x40
    # Ruby's defaults for the variables that make the GC keep pages, or let malloc grow (gc.c, ruby_gc_params).
    DEFAULTS = {
      pages: { /_INIT_SLOTS\z/ => 10_000, /_INIT_BYTES\z/ => 0, /_HEAP_FREE_SLOTS\z/ => 4_096, /_MIN_RATIO\z/ => 0.2,
               /_GOAL_RATIO\z/ => 0.4, /_MAX_RATIO\z/ => 0.65 },
      malloc: { /_OLDMALLOC_LIMIT_MAX\z/ => 128 << 20, /_OLDMALLOC_LIMIT\z/ => 16 << 20,
                /_MALLOC_LIMIT_MAX\z/ => 32 << 20, /_MALLOC_LIMIT\z/ => 16 << 20 }
    }.freeze
    private_constant :FORKED, :DEFAULTS

    class << self
      # @param proc_root [String] read instead of /proc; likewise `sys_root`
      # @return [HostEnvironment]
      def read(cgroup, proc_root: "/proc", sys_root: "/sys", native: Native)
        facts = native.facts
        huge_pages = "#{sys_root}/kernel/mm/transparent_hugepage"
        capture({ cpu_limit: cgroup.cpu_limit, memory_limit_bytes: cgroup.limit_bytes,
                  forks: any_fork(proc_root, native.process),
                  max_mappings: text("#{proc_root}/sys/vm/max_map_count")&.to_i,
                  thp_mode: text("#{huge_pages}/enabled")&.slice(/\[(\w+)\]/, 1),
                  thp_gaps: text("#{huge_pages}/khugepaged/max_ptes_none")&.to_i, **facts,
                  variables: variables(facts[:variables], native), **of_process("#{proc_root}/#{native.process}") })
      end

      private

      def variables(given, native)
        unread = native.ruby < "3.3" ? 'HEAP_\d' : "HEAP_INIT_SLOTS"
        wanted = given.select { |name, _value| name.ascii_only? && name.match?(/\A(DYNO\z|RUBY_GC_(?!#{unread}))/) }
        { **wanted.to_h { |name, value| [name.to_sym, value.scrub] },
          LD_PRELOAD: native.environment_at_load("LD_PRELOAD") }.compact
      end

      def of_process(directory)
        status = text("#{directory}/status").to_s
        fields = ProcessIdentity.stat("#{directory}/stat")
        thp = status[/^THP_enabled:\s*(\d)/, 1]
        { threads: status[/^Threads:\s*(\d+)/, 1]&.to_i, thp_enabled: thp && thp == "1",
          forked: forked?(fields), started: fields[19]&.to_i }
      end

      def text(path) = SystemCall.attempt { File.read(path) }

      def forked?(fields) = fields[6]&.to_i&.anybits?(FORKED)

      # nil if the kernel does not list children (built without CONFIG_PROC_CHILDREN), or no file can be opened.
      # The end of a child of memscope's, as of a copy of the process, sends no signal (exit_signal in proc(5)).
      def any_fork(proc_root, process)
        lists = Dir.glob("#{proc_root}/#{process}/task/*/children").filter_map { |path| text(path) }
        return if lists.empty?

        children = lists.flat_map(&:split).map { |pid| ProcessIdentity.stat("#{proc_root}/#{pid}/stat") }
        children.any? { |fields| forked?(fields) && fields[35] != "0" }
      rescue SystemCallError
        nil
      end
    end

    # @param kind [Symbol] the memory that the variables make Ruby keep: :pages or :malloc
    # @return [Array<String>] the environment variables that exceed Ruby's defaults: "NAME=value"
    def raised(kind)
      variables.filter_map do |name, value|
        default = DEFAULTS.fetch(kind).find { |pattern, _| name.name.match?(pattern) }&.last
        unit = " kmg".index(value[/[kmg]\s*\z/i].to_s.strip.downcase.ljust(1))
        "#{name}=#{value}" if default && value.to_f * (1024**unit) > default
      end
    end

    # @return [Integer] how many threads can run at the same time: the CPUs, or fewer if a quota allows less
    def parallel = [[cpus, cpu_limit&.ceil].compact.min, 1].max

    # @return [Integer] how many arenas suffice for this process: one for each Ractor, whose lock one thread holds at
    #   a time, and one for threads that allocate without such a lock; at most `parallel`
    def arenas = [ractors + 1, parallel].min

    # @return [Boolean] whether the process was forked or forks: forked children inherit its environment
    def forking? = forked? || forks? || false

    # @return [Boolean] whether the kernel may turn any memory of the process into huge pages
    def thp_always? = thp_mode == "always" && thp_enabled? != false

    # @return [String] for people
    def processors
      return "#{cpus} CPU#{'s' unless cpus == 1}" unless cpu_limit && cpu_limit < cpus

      "#{format('%g', cpu_limit)} of #{cpus} CPUs by the cgroup's quota"
    end
  end
end
