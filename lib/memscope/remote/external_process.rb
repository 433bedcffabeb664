# frozen_string_literal: true

Memscope::Loading.unit :Client

module Memscope
  Record.declare(__FILE__)

  # The kernel's view of another process, which need not have loaded memscope: resident memory, how much of it is
  # private, the mapped libraries that have a malloc, and its cgroup. Only the process itself knows which malloc serves
  # it, and where its memory is within malloc and Ruby (Memscope.listen, Client).
  class ExternalProcess < Reading
    # Tier T2: the kernel walks the process's page tables for PSS and USS, which takes milliseconds per GB.
    #
    # @param pid [Integer]
    # @param cgroup [Boolean] whether to read its cgroup too
    # @return [ExternalProcess]
    # @raise [ArgumentError] unless `pid` can be a process ID
    # @raise [Client::Unreachable] if there is no such process
    def self.read(pid, cgroup: true)
      began = Cost.now
      client = Client.new(pid)
      files = Files.new(pid)
      envelope = { memscope: VERSION, ruby: RUBY_VERSION, pid: pid, at: Clock.time, process: ProcessIdentity.of(pid) }
      group = Cgroup.capture(Native.cgroup(pid.to_s, "/proc", "/sys/fs/cgroup"), envelope) if cgroup
      body = files.body.update(uid: client.check, listens: client.listens?, cgroup: group)
      capture(body.update(cost: Cost.of(:T2, Cost.now - began)), envelope)
    end

    # @return [Array<Integer>] the pids of the Ruby processes that this user can see
    def self.rubies = Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i).select { |pid| Client.ruby?(pid) }.sort

    # @api private
    # @return [Symbol, nil] as the field of that name
    def self.copying(pid) = Files.new(pid).copying

    # The files of /proc/PID that this user can read. The process may control their text: nothing in it is trusted.
    # @api private
    class Files
      MALLOCS = { jemalloc: /\Alibjemalloc/, mimalloc: /\Alibmimalloc/, tcmalloc: /\Alibtcmalloc/,
                  musl: /\A(ld-musl-|libc\.musl-)/, glibc: /\Alibc(-[\d.]+)?\.so/ }.freeze
      VARIABLES = %w[LD_PRELOAD MALLOC_CONF MALLOC_ARENA_MAX GLIBC_TUNABLES].freeze
      # Who may trace processes, in a kernel with Yama.
      YAMA = "/proc/sys/kernel/yama/ptrace_scope"
      # Maximum characters of a command line.
      MAX_COMMAND_LENGTH = 500
      # Fields copied from a ProcessMemory.
      FIGURES = %i[rss_bytes peak_rss_bytes pss_bytes uss_bytes shared_bytes anonymous_bytes file_bytes
                   shared_memory_bytes swap_bytes virtual_bytes threads].freeze
      # Those that are wrong while memscope's own forked child lives in that process: it shares every page.
      SHARES = %i[pss_bytes uss_bytes shared_bytes].freeze

      def initialize(pid)
        @pid = pid
        @reasons = {}
      end

      # Whether this user may have a copy of it made, or why not. The kernel opens `mem` for whoever may trace it.
      def copying
        status = read("status", :copying).to_s
        return :traced if status.match?(/^TracerPid:\s*[1-9]/)

        File.open("/proc/#{@pid}/mem") { :possible }
      rescue Errno::EACCES, Errno::EPERM
        return :other_user unless status[/^Uid:\s*\d+\s+(\d+)/, 1].to_i == Process.euid

        File.exist?(YAMA) && File.read(YAMA).to_i.positive? ? :yama : :not_dumpable
      rescue SystemCallError
        nil # it has just ended
      end

      def body
        { command: command, runs_ruby: Client.ruby?(@pid), copying: copying, **figures, mallocs: mallocs,
          variables: variables, reasons: @reasons }
      end

      private

      def command
        line = read("cmdline", :command).to_s.split("\0").join(" ")[0, MAX_COMMAND_LENGTH]
        line.empty? ? read("comm", :command).to_s.chomp : line
      end

      def figures
        spoilt = own_child?
        memory = ProcessMemory.capture(Native.process_memory(@pid.to_s))
        why = Reasons.sentence([:unread, "/proc/#{@pid}/smaps_rollup", :shared]) if spoilt || own_child?
        @reasons.update(memory.reasons.slice(:extension, *FIGURES), why ? SHARES.to_h { |name| [name, why] } : {})
        FIGURES.to_h { |name| [name, (memory.public_send(name) unless why && SHARES.include?(name))] }
      end

      # The end of memscope's own child sends no signal (exit_signal in proc(5), the 36th after the name), as that of no
      # other child of a Ruby.
      def own_child?
        lists = Dir.glob("task/*/children", base: "/proc/#{@pid}").filter_map { |path| read(path, nil) }
        lists.flat_map(&:split).any? { |pid| ProcessIdentity.stat("/proc/#{pid}/stat")[35] == "0" }
      end

      def mallocs
        read("maps", :mallocs).to_s.scan(%r{ (/[^\n]*)$}).flatten.uniq.filter_map do |path|
          name, = MALLOCS.find { |_name, pattern| pattern.match?(File.basename(path)) }
          { name: name, path: path } if name
        end
      end

      def variables
        set = read("environ", :variables)&.scan(/(?:\A|\0)(#{VARIABLES.join('|')})=([^\0]*)/)
        set&.to_h { |name, value| [name.to_sym, Field.line(value)] }
      end

      # nil, with a reason, if the file cannot be read.
      def read(name, field)
        Field.utf8(File.binread("/proc/#{@pid}/#{name}"))
      rescue SystemCallError => e
        @reasons[field] = "/proc/#{@pid}/#{name}: #{e.class.new.message}" if field
        nil
      end
    end
  end
end
