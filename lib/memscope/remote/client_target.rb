# frozen_string_literal: true

module Memscope
  class Client
    # Another process: its owner, and where its socket can be.
    #
    # @api private
    class Target
      class << self
        # @param path [String] the path of a socket
        # @return [Integer] the pid of the process that listens there
        # @raise [ArgumentError, Unreachable]
        def listening_at(path)
          owner = owner(Sockets.check_path(path))
          socket = Sockets.connect(path)
          pid, uid = Sockets.peer(socket)
          return pid if uid == owner && pid.positive?

          raise Unreachable.new("a process of uid #{uid}, not #{owner}, holds the socket #{path}", :untrusted)
        rescue Errno::EAGAIN
          raise Unreachable.new("the process that listens at #{path} accepts no " \
                                "connections: its queue of them is full",
                                :busy)
        rescue SystemCallError => e
          raise Unreachable.new("no process listens at #{path}: #{e.class.new.message}", :silent)
        ensure
          socket&.close
        end

        # @param what [String] a socket or a process
        # @param uid [Integer] its owner's
        # @return [void]
        # @raise [Unreachable] if it is another user's, unless root asks
        def check_user(what, uid)
          return if [0, uid].include?(Process.euid)

          raise Unreachable.new("#{what} is another user's (uid #{uid}); only that " \
                                "user or root can ask it", :foreign)
        end

        private

        # The uid that the listener must have: the owner of the socket. Only that user and root may connect.
        def owner(path)
          owner = File.lstat(path).uid
          check_user("the socket #{path}", owner)
          Sockets.check_directory(File.dirname(path), owner)
          return owner if Sockets.socket?(path, owner)

          raise Sockets::Refused, "#{path} is a #{File.lstat(path).ftype}; allowed: a socket"
        rescue Sockets::Refused => e
          raise Unreachable.new(e.message, :untrusted)
        end
      end

      # @param pid [Integer]
      # @param given [String, nil] the path of its socket
      # @raise [ArgumentError]
      def initialize(pid, given)
        valid = pid.is_a?(Integer) && pid.between?(1, 0x7fff_ffff)
        Field.refuse("pid", pid, "the number of a process") unless valid
        @pid = pid
        @given = given && Sockets.check_path(given)
      end

      # @return [Integer] its effective uid, from the cached /proc/PID/status
      # @raise [Unreachable]
      def uid = status("Uid").split[1].to_i

      # @return [Boolean]
      def alive?
        check
        true
      rescue Unreachable => e
        e.why != :gone
      end

      # @return [void]
      # @raise [Unreachable]
      def check
        @status = nil
        uid
      end

      # @return [String] the path of its socket
      # @raise [Unreachable]
      def path
        owner = uid
        found = paths(owner).find { |path| Sockets.socket?(path, owner) }
        return found if found

        Target.check_user("process #{@pid}", owner)
        raise silence
      end

      # @return [Unreachable] saying that the process does not listen, is gone, or cannot be looked at
      def silence
        check
        Unreachable.new("process #{@pid} does not listen: let it require " \
                        "\"memscope\" and start it with MEMSCOPE_LISTEN=1, or call " \
                        "Memscope.listen in it", :silent)
      rescue Unreachable => e
        e
      end

      private

      def gone = Unreachable.new("there is no process #{@pid}", :gone)

      # A process in a container, or with systemd's PrivateTmp, sees other directories: /proc/PID/root leads to them.
      def paths(owner)
        name = "#{status('NSpid').split.last || @pid}.sock"
        usual = Sockets.candidates(owner).map { |directory| "#{directory}/#{name}" }
        inside = [*@given, *listed(name), *configured, *usual]
        inside.uniq.flat_map { |path| [path, "/proc/#{@pid}/root#{path}"] }
      end

      # Paths with this name in the kernel's list of listening Unix sockets (flag 00010000) in the process's network
      # namespace.
      def listed(name)
        lines = File.readlines("/proc/#{@pid}/net/unix", chomp: true).map { |line| line.b.split(" ", 8) }
        lines.filter_map { |fields| fields[7] if fields[3] == "00010000" && fields[7]&.end_with?("/#{name}") }
             .select { |path| path.start_with?("/") }
      rescue SystemCallError
        []
      end

      # A path of another name, from the process's environment, if that can be read.
      def configured
        File.binread("/proc/#{@pid}/environ")[%r{(?:\A|\0)MEMSCOPE_LISTEN=(/[^\0]*)}n, 1]
      rescue SystemCallError
        nil
      end

      def status(key)
        @status ||= File.read("/proc/#{@pid}/status")
        raise gone if @status.match?(/^State:\s*[ZX]/) # ended, and not yet reaped by its parent

        @status[/^#{key}:\s*(.*)$/, 1].to_s
      rescue Errno::ENOENT, Errno::ESRCH
        raise gone
      rescue SystemCallError => e # hidepid=1, or no descriptors left in this process
        why = [Errno::EACCES, Errno::EPERM].include?(e.class) ? :foreign : :busy
        raise Unreachable.new("/proc/#{@pid}/status: #{e.class.new.message}", why)
      end
    end
    private_constant :Target
  end
end
