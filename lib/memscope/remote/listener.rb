# frozen_string_literal: true

# Answers need these files, and RubyGems' own (profile/application.rb). They are loaded here: beside threads that keep
# the GVL busy, the first require of a default gem takes minutes.
require "digest"
require "etc"
require "forwardable"
Gem::Specification.new.source if defined?(Gem::Specification)
require_relative "calls"
require_relative "sockets"

module Memscope
  # Answers requests, such as those of `memscope report --pid N`, that other processes of the same user or of root send
  # over a Unix socket. Memscope.listen returns a Listener.
  #
  # One thread serves all clients, one call after the other, and never blocks on a client: a client that takes longer
  # than two seconds to send its request, or ten to fetch the answer, is dropped.
  #
  # A forked child opens its own socket, DIRECTORY/PID.sock, and so does a process that Process.daemon has put into the
  # background. A program started by exec inherits nothing.
  class Listener
    # The path, or its directory, cannot be used or trusted: it is a link, another user's, open to others, in use …
    Refused = Sockets::Refused

    # Maximum clients served at a time. Further clients wait in the socket's backlog.
    MAX_CONNECTIONS = 128
    # Seconds to wait after a failed system call.
    RETRY_SECONDS = 0.1
    private_constant :MAX_CONNECTIONS, :RETRY_SECONDS

    @lock = Mutex.new

    class << self
      # @api private
      def listen(path)
        Sockets.check_path(path, :path, "nil, ", call: "Memscope.listen") unless path.nil?
        @lock.synchronize { @current&.open? ? same(path) : start(path) }
      end

      # Listens if MEMSCOPE_LISTEN or the setting `listen` requires it, or with `always`. In Rails the railtie starts
      # the listener instead. Never raises, so that it cannot make a boot fail.
      # @api private
      def boot(asked_by = "MEMSCOPE_LISTEN", always: false)
        where = Loading.unit(:Configuration).so_far.listen || always
        listen(where.is_a?(String) ? where : nil) if where
      rescue StandardError => e
        warn "memscope: #{asked_by}: this process (pid #{Process.pid}) does not listen: #{e.message}"
      end

      # @api private
      # @return [Listener, nil] the one that listens in this process
      def current = (@current if @current&.open? && @current.pid == Process.pid)

      private :new

      private

      # Runs in a forked child, which has no other thread yet and holds a copy of its parent's socket. Never raises.
      def forked(daemon: false)
        return unless (inherited = @current)

        @current = nil
        listened = inherited.open?
        inherited.abandon(gone: daemon)
        @current = new(own_path(File.dirname(inherited.path))) if listened
      rescue StandardError => e
        warn "memscope: the forked process #{Process.pid} does not listen: #{e.message}"
      end

      def start(path)
        @current&.close
        hook unless @hooked
        @current = new(path || own_path(Loading.unit(:Configuration).so_far.socket_directory))
      end

      # Called once: a forked child inherits both hooks.
      def hook
        @hooked = true
        Forks.listen(child: -> { forked }, daemon: -> { forked(daemon: true) })
        at_exit { @current&.close }
      end

      def same(path)
        return @current if path.nil? || @current.path == path

        raise Sockets.refused(:listens_elsewhere, path: path, current: @current.path)
      end

      def own_path(directory)
        directory = Sockets.directory(directory)
        Sockets.sweep(directory)
        File.join(directory, "#{Process.pid}.sock")
      end
    end

    # @return [String] the path of the socket
    attr_reader :path

    # @return [Integer] the pid of the process that listens
    attr_reader :pid

    # @api private
    # @return [Float] when the last client was accepted, or when this listener began: seconds of CLOCK_MONOTONIC
    attr_reader :last_client

    # @api private
    def initialize(path)
      @pid = Process.pid
      @last_client = Clock.now
      @path = path
      Sockets.directory(File.dirname(path))
      @server = Sockets.open(path)
      @inode = File.lstat(path).ino
      @wake, @alarm = IO.pipe
      @connections = []
      @part = "".b
      @open = true
      @thread = Forks.background("memscope listener") { turn while @open }
      @thread.report_on_exception = false
    rescue SystemCallError, ThreadError => e # no descriptors, or no threads, left
      close_descriptors
      remove
      raise Refused, "the socket #{path}: #{e.is_a?(SystemCallError) ? e.class.new.message : e.message}"
    end

    # Stops listening and removes the socket. Waits for a call in progress for at most 0.1 s.
    #
    # @return [void]
    def close
      return unless @open && @pid == Process.pid

      @open = false
      @alarm.close
      @thread.join(RETRY_SECONDS) unless @thread == Thread.current
      close_descriptors
      remove
    end

    # Makes the thread that listens call `work.step` between two calls, instead of earlier work that has not run yet.
    # @api private
    def soon(work)
      @soon = work
      @alarm.write_nonblock(".", exception: false)
    rescue IOError, SystemCallError
      nil # it is closed
    end

    # @return [Boolean] whether it listens: false once it is closed or its thread was killed, and in a forked child
    def open? = @open && (@pid != Process.pid || @thread.alive?)

    # In a forked child, closes the copies of the parent's descriptors, and removes the socket of a parent that is gone.
    # @api private
    def abandon(gone:)
      @open = false
      close_descriptors
      remove if gone
    end

    private

    def close_descriptors = [@server, @wake, @alarm, *@connections].compact.each(&:close)

    def remove = SystemCall.attempt { File.unlink(@path) if File.lstat(@path).ino == @inode }

    # Waits until a client can be accepted, read from, written to or dropped, and does that.
    def turn
      ready = wait
      return unless @open

      moment = Clock.now # calls can be slow: a client that has written meanwhile is read before it can be dropped
      (ready & @connections).each(&:go_on)
      answer
      work
      accept if ready.include?(@server) # last: it raises if no descriptors are left
    rescue StandardError
      sleep RETRY_SECONDS if @open # an exception must not end a program that sets Thread.abort_on_exception
    ensure
      drop(moment) if moment # also if an exception kept an answer from its client
    end

    def drop(moment)
      done, @connections = @connections.partition { |one| one.over || one.deadline < moment }
      done.each(&:close)
    end

    def wait
      own = @connections.size < MAX_CONNECTIONS ? [@wake, @server] : [@wake]
      reading, writing = @connections.partition(&:reading?)
      soonest = @connections.map(&:deadline).min
      seconds = (soonest - Clock.now).clamp(0, nil) if soonest
      ready = IO.select(own + reading, writing, nil, seconds).to_a.flatten
      @wake.read_nonblock(64, exception: false) if ready.include?(@wake) && @open
      ready
    end

    def accept
      while @connections.size < MAX_CONNECTIONS
        socket = @server.accept_nonblock(exception: false)
        break if socket == :wait_readable

        @last_client = Clock.now
        @connections << Connection.new(socket, @part)
      end
    end

    def answer
      @connections.select(&:request).each do |connection|
        connection.answer(lasting { Calls.answer(connection.request) })
      end
    end

    def work
      work = @soon or return
      @soon = nil
      lasting { work.step }
    end

    # The time that a call takes does not count against the clients' deadlines.
    def lasting
      began = Clock.now
      yield.tap { @connections.each { |connection| connection.deadline += Clock.now - began } }
    end

    # One client: reads one line and writes one line, each within its deadline. Never blocks. Leaves little garbage,
    # which Puma's master seldom collects.
    # @api private
    class Connection
      # Seconds in which the whole request must arrive, and in which the client must fetch the whole answer.
      TIMEOUT_SECONDS = 2.0
      FETCHING = 10.0

      # When the client is dropped, in seconds of CLOCK_MONOTONIC.
      attr_accessor :deadline

      # `request` is there from its arrival until it is answered. `over` means that nothing is left to do.
      attr_reader :request, :over

      # `read` overwrites `part`, which is the same for all clients.
      def initialize(socket, part)
        @socket = socket
        @part = part
        @buffer = +"".b
        @deadline = Clock.now + TIMEOUT_SECONDS
        @over = ![0, Process.euid].include?(socket.getpeereid.first)
      rescue SystemCallError
        @over = true # the client is gone
      end

      def to_io = @socket

      def reading? = @answer.nil?

      def close = @socket.close

      # Reads or writes as much as it can without blocking.
      def go_on
        reading? ? read : write
      rescue IOError, SystemCallError
        @over = true # the client is gone
      end

      # `text` is one line, which is cleared once it is written.
      def answer(text)
        @request = nil
        @answer = text.force_encoding(Encoding::BINARY)
        @deadline = Clock.now + FETCHING
        go_on
      end

      private

      def read
        part = @socket.read_nonblock(Calls::MAX_REQUEST_BYTES + 1, @part, exception: false)
        return if part == :wait_readable
        return @over = true if part.nil?

        line, ending = (@buffer << part).partition("\n")
        @request = line unless ending.empty? && line.bytesize <= Calls::MAX_REQUEST_BYTES
      end

      def write
        count = @socket.write_nonblock(@answer, exception: false)
        return if count == :wait_writable

        @over = count == @answer.bytesize
        @over ? @answer.clear : @answer = @answer.byteslice(count..)
      end
    end
  end
end
