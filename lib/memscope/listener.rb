# frozen_string_literal: true

require_relative "sockets"

module Memscope
  # Answers other processes of the same user, or root, over a Unix socket: `memscope report --pid N` and its kin. What
  # Memscope.listen returns.
  #
  # One thread serves all of them, one call after the other, and waits for no client: one that is slow is given up after
  # two seconds. Clients that ask for the same reading while another call is answered share one.
  #
  # A forked child opens a socket of its own, DIRECTORY/PID.sock, and so does a process that Process.daemon has put into
  # the background. Another program that the process becomes by exec inherits nothing.
  class Listener
    # The path, or its directory, cannot be used or trusted: it is a link, another user's, open to others, in use…
    Refused = Sockets::Refused

    # So many are served at a time; others wait in the socket's queue.
    MOST = 128
    # Seconds to wait where a system call failed.
    PAUSE = 0.1
    private_constant :MOST, :PAUSE

    # Ruby calls the first for every fork that goes on as Ruby, and documents it for libraries that have threads to
    # restart. It does not for Process.daemon.
    module AfterFork
      # @api private
      def _fork = super.tap { |pid| Listener.forked if pid.zero? }

      # @api private
      def daemon(...) = super.tap { Listener.forked(daemon: true) }
    end
    private_constant :AfterFork

    require_relative "listener/connection"

    @lock = Mutex.new

    class << self
      # Does what Memscope.listen says.
      #
      # @api private
      # @param path [String, nil]
      # @return [Listener]
      def listen(path)
        unless path.nil? || (path.is_a?(String) && path.start_with?("/"))
          raise ArgumentError, "Memscope.listen: path: given #{path.inspect}, allowed: nil, an absolute path"
        end

        @lock.synchronize { @current&.open? ? same(path) : start(path) }
      end

      # What MEMSCOPE_LISTEN asks for when memscope is loaded, or the setting `listen` when it is made; in Rails the
      # railtie does it. Raises nothing: a boot does not fail for this.
      #
      # @api private
      # @param asked_by [String]
      # @return [void]
      def boot(asked_by = "MEMSCOPE_LISTEN")
        where = Configuration.so_far.listen
        listen(where.is_a?(String) ? where : nil) if where
      rescue StandardError => e
        warn "memscope: #{asked_by}: this process (pid #{Process.pid}) does not listen: #{e.message}"
      end

      # In a child, which has no other thread yet: what listened is the parent's. Raises nothing.
      #
      # @api private
      # @param daemon [Boolean] whether the parent is gone
      # @return [void]
      def forked(daemon: false)
        return unless (inherited = @current)

        @current = nil
        listened = inherited.open?
        inherited.abandon(gone: daemon)
        @current = new(own_path(File.dirname(inherited.path))) if listened
      rescue StandardError => e
        warn "memscope: the forked process #{Process.pid} does not listen: #{e.message}"
      end

      # @api private
      # @return [Float] seconds
      def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

      private :new

      private

      def start(path)
        @current&.close
        hook unless @hooked
        @current = new(path ? Sockets.check_path(path) : own_path(Configuration.so_far.socket_directory))
      end

      # Once: a forked child inherits both.
      def hook
        @hooked = true
        Process.singleton_class.prepend(AfterFork)
        at_exit { @current&.close }
      end

      def same(path)
        return @current if path.nil? || @current.path == path

        raise Refused, "Memscope.listen: path: given #{path}, but this process listens on #{@current.path} already; " \
                       "allowed: that, or close it first"
      end

      def own_path(directory)
        directory = Sockets.directory(directory)
        Sockets.sweep(directory)
        File.join(directory, "#{Process.pid}.sock")
      end
    end

    # @return [String] of the socket
    attr_reader :path

    # @return [Integer] of the process that listens
    attr_reader :pid

    # @api private
    def initialize(path)
      @pid = Process.pid
      @path = path
      Sockets.directory(File.dirname(path))
      @server = Sockets.open(path)
      @inode = File.lstat(path).ino
      @wake, @alarm = IO.pipe
      @connections = []
      @rested = Listener.now
      @open = true
      @thread = start
    end

    # Stops listening, and removes the socket. A call that is being answered is not waited for.
    #
    # @return [void]
    def close
      return unless @open && @pid == Process.pid

      @open = false
      @alarm.close
      @thread.join(PAUSE) unless @thread == Thread.current
      let_go
      remove
    end

    # @return [Boolean] whether it listens: false once closed, in a forked child, and where somebody killed its thread
    def open? = @open && (@pid != Process.pid || @thread.alive?)

    # In a child: lets go of what is the parent's.
    #
    # @api private
    # @param gone [Boolean] whether the parent is gone, and with it the use of its socket
    # @return [void]
    def abandon(gone:)
      @open = false
      let_go
      @alarm.close
      remove if gone
    end

    private

    def start
      thread = Thread.new { serve }
      thread.name = "memscope listener"
      thread.report_on_exception = false
      thread.thread_variable_set(:fork_safe, true) # Puma warns of a thread at fork that is not marked so
      thread
    end

    def let_go = [@server, @wake, *@connections].each(&:close)

    def remove
      File.unlink(@path) if File.lstat(@path).ino == @inode
    rescue SystemCallError
      nil # somebody else has removed it
    end

    def serve
      turn while @open
    end

    # Waits until somebody has something to say or to hear, or took too long.
    def turn
      ready = wait
      return unless @open

      moment = Listener.now # a call may take long; who spoke up meanwhile is heard before being given up
      accept if ready.include?(@server)
      (ready & @connections).each(&:go_on)
      answer
      drop { |connection| connection.over? || connection.deadline < moment }
    rescue StandardError
      sleep PAUSE if @open # whatever it is, it must not end the program where threads abort on exceptions
    end

    def wait
      resting = @connections.size >= MOST || Listener.now < @rested
      own = resting ? [@wake] : [@wake, @server]
      reading, writing = @connections.partition(&:reading?)
      soonest = [*@connections.map(&:deadline), *(@rested if resting)].min
      IO.select(own + reading, writing, nil, soonest && (soonest - Listener.now).clamp(0, nil)).to_a.flatten
    end

    # All that wait in the queue, so that many can share a reading.
    def accept
      while @connections.size < MOST
        socket = @server.accept_nonblock(exception: false)
        break if socket == :wait_readable

        welcome(socket)
      end
    rescue SystemCallError
      @rested = Listener.now + PAUSE # no descriptors left, for instance
    end

    def welcome(socket)
      _pid, uid = Sockets.peer(socket)
      return socket.close unless [0, Process.euid].include?(uid)

      @connections << Connection.new(socket).tap(&:go_on)
    rescue SystemCallError
      socket.close
    end

    def answer
      @connections.select(&:request).group_by(&:request).each do |line, asking|
        shared = Remote.answer(line) if Remote.shareable?(line)
        asking.each { |connection| connection.answer(shared || Remote.answer(line)) }
      end
    end

    def drop(&)
      done, @connections = @connections.partition(&)
      done.each(&:close)
    end
  end
end
