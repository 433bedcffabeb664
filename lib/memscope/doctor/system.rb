# frozen_string_literal: true

require "etc"
require_relative "../record"

module Memscope
  module Doctor
    # What the doctor has to know of the system, and of how the process came about.
    class System < Record
      # Of the flags in /proc/self/stat: forked, and no exec since (PF_FORKNOEXEC in the kernel's sched.h).
      FORKED = 0x40
      HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage"
      private_constant :FORKED, :HUGE_PAGES

      # @!attribute [r] processors
      #   @return [Integer] that this process may use
      field :processors, :count, null: false
      # @!attribute [r] huge_pages
      #   @return [String, nil] the kernel's transparent huge pages: "always", "madvise" or "never"
      field :huge_pages, :string
      # @!attribute [r] huge_page_gaps
      #   @return [Integer, nil] how many pages the kernel fills in to make a huge one (khugepaged's max_ptes_none)
      field :huge_page_gaps, :count
      # @!attribute [r] forked?
      #   @return [Boolean, nil] whether it was forked and became no other program since
      field :forked, :boolean
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

      # @return [System]
      def self.read
        fields = stat
        flags = fields[6]&.to_i
        capture({ processors: Etc.nprocessors, huge_pages: text("enabled")&.slice(/\[(\w+)\]/, 1),
                  huge_page_gaps: text("khugepaged/max_ptes_none")&.to_i, forked: flags && flags.anybits?(FORKED),
                  parent_pid: Process.ppid, started: fields[19]&.to_i, yjit: yjit?,
                  cpu_seconds: Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID),
                  environment: environment })
      end

      def self.environment
        { DYNO: ENV.fetch("DYNO", nil), LD_PRELOAD: Native.environment_at_load("LD_PRELOAD") }.compact
      end

      # The fields behind the command's name, which may hold spaces and brackets: state, ppid, …
      def self.stat
        File.read("/proc/self/stat").rpartition(")").last.split
      rescue SystemCallError
        []
      end

      def self.text(name)
        File.read(File.join(HUGE_PAGES, name))
      rescue SystemCallError
        nil
      end

      def self.yjit? = (defined?(RubyVM::YJIT) && RubyVM::YJIT.enabled?) || false

      private_class_method :environment, :stat, :text, :yjit?
    end
  end
end
