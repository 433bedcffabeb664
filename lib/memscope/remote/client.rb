# frozen_string_literal: true

require_relative "../value/loader" # before several threads need it at once
Memscope::Loading.unit :Listener

module Memscope
  # Requests readings from another process, which must listen (Memscope.listen, MEMSCOPE_LISTEN=1) and belong to the
  # same user, unless this user is root.
  #
  #   Memscope::Client.new(4711).call(:ledger, deep: true)   # => Memscope::Ledger
  #
  # The answer is not trusted: terminal control characters in it are replaced.
  class Client
    # The process cannot be reached, for the reason in the message.
    class Unreachable < StandardError
      # @return [Symbol] :gone, :foreign (another user's), :silent (it does not listen), :busy (it does not answer, or
      #   accepts no connection now) or :untrusted (another process answers)
      attr_reader :why

      # @api private
      # @param text [Symbol, String] in client.words, or the message
      def initialize(text, why, **figures)
        super(text.is_a?(Symbol) ? WORDS.fill(text, figures) : text)
        @why = why
      end
    end

    # The process could not answer, or this memscope does not understand the answer.
    class Failed < StandardError; end

    WORDS = Words.beside(__FILE__)
    # Maximum bytes of an answer.
    MAX_ANSWER_BYTES = 64 * 1024 * 1024
    # Seconds between two attempts to connect while the listener's backlog is full.
    RETRY_SECONDS = 0.05
    private_constant :WORDS, :RETRY_SECONDS

    class << self
      # A client of the process that listens at a path, such as the path given to Memscope.listen. A pid alone leads
      # only to a socket named PID.sock, or to the one that MEMSCOPE_LISTEN names.
      #
      # @param path [String] the path of the socket
      # @param timeout [Numeric] seconds to wait for an answer
      # @return [Client]
      # @raise [ArgumentError] unless the path is absolute, and short enough for a socket
      # @raise [Unreachable] if no process listens there, or if the socket or its directory is another user's, open to
      #   others, or a link
      def at(path, timeout: 60)
        owner = owner(Sockets.check_path(path))
        socket, pid, uid = connect(path)
        return new(pid, path: path, timeout: timeout) if uid == owner && pid.positive?

        raise Unreachable.new(:held_by_another_user, :untrusted, uid: uid, owner: owner, path: path)
      rescue Errno::EAGAIN
        raise Unreachable.new(:queue_full, :busy, path: path)
      rescue SystemCallError => e
        raise Unreachable.new(:nobody_listens, :silent, path: path, error: e.class.new.message)
      ensure
        socket&.close
      end

      # Connects without waiting. Also returns the pid and the uid of the process that called listen(2).
      # @api private
      # @raise [SystemCallError] EAGAIN if the listener's backlog is full
      def connect(path)
        socket = Socket.new(:UNIX, :STREAM)
        socket.connect_nonblock(Socket.sockaddr_un(path))
        [socket, *socket.getsockopt(:SOCKET, :PEERCRED).unpack("iI")]
      rescue SystemCallError, ArgumentError
        socket&.close
        raise
      end

      # @api private
      # @return [Boolean] whether its program is a ruby, by its file or, if /proc/PID/exe cannot be read, by its name
      def ruby?(pid) = SystemCall.attempt { program(pid).start_with?("ruby") } == true

      # @api private
      # @raise [Unreachable] if a socket or a process is another user's, unless this user is root
      def check_user(what, uid)
        return if [0, uid].include?(Process.euid)

        raise Unreachable.new(:of_another_user, :foreign, what: what, uid: uid)
      end

      private

      def program(pid)
        File.basename(File.readlink("/proc/#{pid}/exe"))
      rescue Errno::EACCES
        File.read("/proc/#{pid}/comm")
      end

      # The uid that the listener must have: the owner of the socket. Only that user and root may connect.
      def owner(path)
        stat = File.lstat(path)
        check_user(WORDS.fill(:socket, path: path), stat.uid)
        Sockets.check_directory(File.dirname(path), stat.uid)
        return stat.uid if stat.socket?

        raise Sockets::Refused, WORDS.fill(:no_socket, path: path, type: stat.ftype)
      rescue Sockets::Refused => e
        raise Unreachable.new(e.message, :untrusted)
      end
    end

    # @return [Integer]
    attr_reader :pid

    # @param pid [Integer]
    # @param path [String, nil] the path of its socket, if the pid alone does not lead to it
    # @param timeout [Numeric] seconds to wait for an answer
    # @raise [ArgumentError] unless `pid` can be a process ID, and `timeout` is positive
    def initialize(pid, path: nil, timeout: 60)
      @timeout = Field.seconds("timeout", timeout, Float::MIN.., "seconds above 0", call: "Memscope::Client.new")
      @pid = Field.check("pid", pid, "the number of a process") { pid.is_a?(Integer) && pid.between?(1, 0x7fff_ffff) }
      @path = path && Sockets.check_path(path)
    end

    # @param name [Symbol] the name of a call: rss, allocator, snapshot, ledger, arenas, size_classes, fragmentation,
    #   mappings, ruby_heap, census, heap_graph, process_memory, cgroup, history, verdict, lint, doctor, workers, tags,
    #   purge, dump, and malloc_profile_state, malloc_profile_snapshot, malloc_profile_start, malloc_profile_stop, and
    #   the same four calls for object_profile. Calls::CALLS has those of the pages, too
    # @param options [Hash{Symbol => Object}] the options of that call, except doctor's `since` and dump's `contents`;
    #   purge takes a list of `levers`, and dump a `path`
    # @return [Object] the result of that call in the other process
    # @raise [Invalid] for an invalid call or option
    # @raise [Unreachable] if the process cannot be reached
    # @raise [Failed] if it could not answer, or the answer is not understood
    # @raise [Purge::Busy] if it is already purging
    def call(name, **options)
      known = Calls::CALLS.fetch(name) do
        Field.refuse("call", name, Calls::CALLS.keys.join(", "), call: "Memscope::Client#call")
      end
      given = exchange("#{request(name, options)}\n")
      given.key?("ok") ? load(known, given["ok"]) : complain(given)
    end

    # @return [Boolean] whether this client can connect to the process, now or once the process has accepted those who
    #   connected before. Does not wait for that
    def listens?
      connect&.close
      true
    rescue Unreachable
      false
    end

    # @api private
    # @return [Integer] its effective uid
    def check
      @status = nil
      uid
    end

    private

    def request(name, options)
      JSON.generate(call: name, options: options)
    rescue JSON::GeneratorError, EncodingError
      Field.refuse("options of #{name}", options, "text in UTF-8", call: "Memscope::Client#call")
    end

    def load(known, given)
      known.load(given)
    rescue ArgumentError => e
      raise failed(:not_understood, version: VERSION, error: e.message)
    end

    def complain(answer)
      error, argument, given, allowed, call =
        answer.values_at("error", "argument", "given", "allowed", "call").map { |text| text && Field.text(text.to_s) }
      case answer["kind"]
      when "Memscope::Invalid" then raise Invalid.new(argument, given, allowed, call: call)
      when "Memscope::Purge::Busy" then raise Purge::Busy, error
      else raise failed(:failed, error: error)
      end
    end

    def exchange(request)
      deadline = Clock.now + @timeout
      socket = connected(deadline)
      socket.write(request)
      parsed(read(socket, deadline))
    rescue IOError, SystemCallError => e
      check
      raise unreachable(:hung_up, :busy, error: e.message)
    ensure
      socket&.close
    end

    def parsed(text)
      answer = JSON.parse(Field.utf8(text))
      answer.is_a?(Hash) ? answer : raise(failed(:no_object))
    rescue JSON::ParserError
      raise failed(:no_json)
    end

    def connected(deadline)
      until (socket = connect)
        raise too_slow if Clock.now > deadline

        sleep RETRY_SECONDS
      end
      socket
    end

    # The listener must be the requested process: not a child that inherited the socket, nor any other process. Returns
    # nil while the listener's backlog is full.
    def connect
      socket, pid, uid = Client.connect(path)
      return socket if pid == @pid && uid == self.uid

      socket.close
      raise unreachable(:held_by_another, :untrusted, holder: pid, uid: uid)
    rescue Errno::EAGAIN
      nil
    rescue Errno::ECONNREFUSED, Errno::ENOENT
      silent
    rescue Errno::EACCES
      raise unreachable(:not_entered, :foreign)
    rescue SystemCallError => e # for instance a socket of another type
      raise unreachable(:unusable, :untrusted, error: e.class.new.message)
    end

    def read(socket, deadline)
      text = +""
      buffer = +"" # of 64 KiB, freed below
      until text.end_with?("\n")
        raise too_slow unless socket.wait_readable([deadline - Clock.now, 0].max)

        part = socket.read_nonblock(1 << 16, buffer, exception: false)
        raise EOFError, WORDS[:no_answer] if part.nil?

        text << part unless part == :wait_readable
        raise failed(:too_long) if text.bytesize > MAX_ANSWER_BYTES
      end
      text
    ensure
      buffer.clear
    end

    def too_slow
      stopped = SystemCall.attempt { File.read("/proc/#{@pid}/status").match?(/^State:\s*T/i) }
      unreachable(stopped ? :stopped : :too_slow, :busy, seconds: @timeout)
    end

    def unreachable(text, why, **figures) = Unreachable.new(text, why, pid: @pid, **figures)

    def failed(text, **figures) = Failed.new(WORDS.fill(text, pid: @pid, **figures))

    # The process's effective uid.
    def uid = status("Uid").split[1].to_i

    # Raises, since the process is gone, cannot be looked at, or does not listen.
    def silent
      check
      raise unreachable(Client.ruby?(@pid) ? :silent : :no_ruby, :silent, unlisted: @unlisted)
    end

    # A process in a container, or with systemd's PrivateTmp, sees other directories: /proc/PID/root leads to them.
    def path
      Client.check_user(WORDS.fill(:process, pid: @pid), uid)
      paths = [*@path, *listed, *configured].uniq.flat_map { |path| [path, "/proc/#{@pid}/root#{path}"] }
      paths.find { |path| socket?(path) } || silent
    end

    # True if it is a socket of the process's user, and not a link.
    def socket?(path) = SystemCall.attempt { File.lstat(path).then { |stat| stat.socket? && stat.uid == uid } }

    # Paths that end in PID.sock in the kernel's list of listening Unix sockets (flag 00010000) in the process's network
    # namespace.
    def listed
      name = "#{status('NSpid').split.last || @pid}.sock"
      sockets = File.binread("/proc/#{@pid}/net/unix").scan(%r{^\S+ \S+ \S+ 00010000 \S+ \S+ +\d+ (/.*)$}n).flatten
      sockets.select { |path| path.end_with?("/#{name}") }
    rescue SystemCallError => e
      @unlisted = WORDS.fill(:unlisted, pid: @pid, error: e.class.new.message)
      []
    end

    # The path in MEMSCOPE_LISTEN, if the process's environment has one and can be read.
    def configured
      SystemCall.attempt { File.binread("/proc/#{@pid}/environ") }&.slice(%r{(?:\A|\0)MEMSCOPE_LISTEN=(/[^\0]*)}n, 1)
    end

    def status(key)
      @status ||= File.read("/proc/#{@pid}/status")
      raise gone if @status.match?(/^State:\s*[ZX]/) # ended, and not yet reaped by its parent

      @status[/^#{key}:\s*(.*)$/, 1].to_s
    rescue Errno::ENOENT, Errno::ESRCH
      raise hidden? ? unreachable(:hidden, :foreign) : gone
    rescue SystemCallError => e # hidepid=1, or no descriptors left in this process
      why = [Errno::EACCES, Errno::EPERM].include?(e.class) ? :foreign : :busy
      raise unreachable(:unread, why, error: e.class.new.message)
    end

    def gone = unreachable(:gone, :gone)

    # True with hidepid=2: another user's process is not in /proc, but can be refused a signal.
    def hidden?
      Process.kill(0, @pid)
      false
    rescue SystemCallError => e
      e.is_a?(Errno::EPERM)
    end
  end
end
