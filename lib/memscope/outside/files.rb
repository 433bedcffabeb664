# frozen_string_literal: true

module Memscope
  class Outside
    # The files of /proc/PID, as far as they may be read. Their text is the process's own: nothing in it is trusted.
    #
    # @api private
    class Files
      # Each figure by its key in status, in kB.
      STATUS = { rss_bytes: "VmRSS", peak_rss_bytes: "VmHWM", anonymous_bytes: "RssAnon", file_bytes: "RssFile",
                 shared_memory_bytes: "RssShmem", swap_bytes: "VmSwap", virtual_bytes: "VmSize" }.freeze
      # And in smaps_rollup, where several are summed.
      ROLLUP = { pss_bytes: %w[Pss], uss_bytes: %w[Private_Clean Private_Dirty],
                 shared_bytes: %w[Shared_Clean Shared_Dirty] }.freeze
      MALLOCS = { jemalloc: /\Alibjemalloc/, mimalloc: /\Alibmimalloc/, tcmalloc: /\Alibtcmalloc/,
                  musl: /\A(ld-musl-|libc\.musl-)/, glibc: /\Alibc(-[\d.]+)?\.so/ }.freeze
      VARIABLES = %w[LD_PRELOAD MALLOC_CONF MALLOC_ARENA_MAX GLIBC_TUNABLES].freeze
      # Characters of a command line.
      LONGEST = 500
      private_constant :STATUS, :ROLLUP, :MALLOCS, :VARIABLES, :LONGEST

      # @param pid [Integer]
      def initialize(pid)
        @pid = pid
        @reasons = {}
      end

      # @return [Boolean] whether its program is a ruby; where that may not be seen, whether it calls itself so
      def runs_ruby?
        program.start_with?("ruby")
      rescue SystemCallError
        false
      end

      # @return [Hash{Symbol => Object}] the fields that are read here, and the reasons
      # @raise [Client::Unreachable] where there is no such process
      def body
        { command: command, uid: status["Uid"].split[1].to_i, runs_ruby: runs_ruby?, **figures,
          threads: status["Threads"]&.to_i, mallocs: mallocs, variables: variables, reasons: @reasons }
      end

      # @param envelope [Hash{Symbol => Object}]
      # @return [Cgroup] from the kernel's files, which are looked for in a directory that stands for /proc
      def cgroup(envelope)
        Dir.mktmpdir("memscope") do |proc_root|
          Dir.mkdir("#{proc_root}/self")
          File.symlink("/proc/#{@pid}/cgroup", "#{proc_root}/self/cgroup")
          File.symlink("/proc/self/mountinfo", "#{proc_root}/self/mountinfo")
          File.symlink("/proc/meminfo", "#{proc_root}/meminfo")
          Cgroup.capture(Native.cgroup(proc_root, "/sys/fs/cgroup"), envelope)
        end
      rescue SystemCallError => e
        @reasons[:cgroup] = "no directory could be made to look it up: #{e.class.new.message}"
        nil
      end

      private

      def program
        File.basename(File.readlink("/proc/#{@pid}/exe"))
      rescue Errno::EACCES
        File.read("/proc/#{@pid}/comm")
      end

      def status
        @status ||= pairs(File.read("/proc/#{@pid}/status"))
      rescue Errno::ENOENT, Errno::ESRCH
        raise Client::Unreachable.new("there is no process #{@pid}", :gone)
      end

      def pairs(text) = text.scan(/^(\w+):\s*(.*)$/).to_h

      def command
        line = read("cmdline", :command).to_s.split("\0").join(" ")[0, LONGEST]
        printable(line.empty? ? status["Name"].to_s : line)
      end

      def figures
        rollup = pairs(read("smaps_rollup", :pss_bytes).to_s)
        { **STATUS.transform_values { |key| kilobytes(status[key]) },
          **ROLLUP.transform_values { |keys| keys.sum { |key| kilobytes(rollup.fetch(key)) } unless rollup.empty? } }
      end

      def kilobytes(text) = text && (text.to_i * 1024)

      def mallocs
        paths = read("maps", :mallocs).to_s.scan(%r{ (/[^\n]*)$}).flatten.uniq
        preloads = [variables&.fetch(:LD_PRELOAD, ""), read("root/etc/ld.so.preload", nil)].compact
        paths.filter_map do |path|
          name, = MALLOCS.find { |_name, pattern| pattern.match?(File.basename(path)) }
          { name: name, path: printable(path), preloaded: preload(path, preloads) } if name
        end
      end

      def preload(path, preloads)
        preloads.join(" ").split(/[\s:]/).any? { |given| same?(given, path) } unless preloads.empty?
      end

      # A preload can be a link to what is mapped, such as libjemalloc.so to libjemalloc.so.2.
      def same?(given, path) = !given.empty? && File.basename(path).start_with?(File.basename(given))

      def variables
        @variables ||= read("environ", :variables)&.scan(/(?:\A|\0)(#{VARIABLES.join('|')})=([^\0]*)/)
                                                  &.to_h { |name, value| [name.to_sym, printable(value)] }
      end

      # @return [String, nil] nil where it may not be read, which is a reason
      def read(name, field)
        Field.text(File.binread("/proc/#{@pid}/#{name}"))
      rescue SystemCallError => e
        @reasons[field] = "/proc/#{@pid}/#{name}: #{e.class.new.message}" if field
        nil
      end

      def printable(text) = Remote.printable(text).tr("\n\t", "??")
    end
    private_constant :Files
  end
end
