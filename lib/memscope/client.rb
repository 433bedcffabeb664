# frozen_string_literal: true

require_relative "listener"
require_relative "loader" # before several threads need it at once
require_relative "remote"
require_relative "sockets"

module Memscope
  # Asks another process for its readings, one that listens: it has called Memscope.listen, or was started with
  # MEMSCOPE_LISTEN=1. It must be of the same user, unless root asks.
  #
  #   Memscope::Client.new(4711).call(:ledger, deep: true)   # => Memscope::Ledger
  #
  # What comes back is checked as text of a stranger: characters that a terminal obeys are replaced.
  class Client
    # That process cannot be asked; the message says why.
    class Unreachable < StandardError
      # @return [Symbol] :gone, :foreign (another user's), :silent (it does not listen), :busy (it does not answer) or
      #   :untrusted (somebody else answers)
      attr_reader :why

      # @api private
      def initialize(message, why)
        super(message)
        @why = why
      end
    end

    # It could not answer, or in a way that this memscope does not understand; the message says which.
    class Failed < StandardError; end

    require_relative "client/target" # a class inside this one

    # The largest answer, in bytes.
    LONGEST_ANSWER = 64 * 1024 * 1024
    # Seconds between two attempts to connect where too many wait.
    PAUSE = 0.05
    private_constant :LONGEST_ANSWER, :PAUSE

    # Whoever listens at a path of its own, as Memscope.listen(path:) does: others find only those in the directories
    # for sockets.
    #
    # @param path [String] of the socket
    # @param timeout [Numeric] seconds to wait for an answer
    # @return [Client]
    # @raise [ArgumentError] unless the path is absolute, and fits
    # @raise [Unreachable] where nobody listens there, and where the socket or its directory is another user's, open to
    #   others, or a link
    def self.at(path, timeout: 60) = new(Target.listening_at(path), path: path, timeout: timeout)

    # @return [Integer]
    attr_reader :pid

    # @param pid [Integer]
    # @param path [String, nil] of its socket, where it was given one of its own
    # @param timeout [Numeric] seconds to wait for an answer
    # @raise [ArgumentError] unless the pid can be one, and the timeout is positive
    def initialize(pid, path: nil, timeout: 60)
      unless timeout.is_a?(Numeric) && timeout.real? && timeout.positive?
        raise ArgumentError, "Memscope::Client: timeout: given #{timeout.inspect}, allowed: seconds above 0"
      end

      @target = Target.new(pid, path)
      @pid = pid
      @timeout = timeout
    end

    # @param name [Symbol] of a call of Memscope's: rss, allocator, snapshot, ledger, arenas, size_classes,
    #   fragmentation, mappings, ruby_heap, process_memory, cgroup, lint, doctor, workers, purge,
    #   and malloc_profile_state, malloc_profile_snapshot, malloc_profile_start, malloc_profile_stop
    # @param options [Hash{Symbol => Object}] what that call takes, but not doctor's `since` and purge's `settle`;
    #   purge's levers are the list `levers`
    # @return [Object] what Memscope's call of this name returns there
    # @raise [ArgumentError] for a wrong call or option
    # @raise [Unreachable] where the process cannot be asked
    # @raise [Failed] where it could not answer
    # @raise [Purge::Busy] where it purges already
    def call(name, **options)
      known = Remote::CALLS.fetch(name) do
        raise ArgumentError, "Memscope::Client: call: given #{name.inspect}, allowed: #{Remote::CALLS.keys.join(', ')}"
      end
      given = exchange("#{JSON.generate(call: name, options: options)}\n")
      given.key?("ok") ? load(known, given["ok"]) : complain(*given.values_at("kind", "error").map(&:to_s))
    end

    # @return [Boolean] whether the process can be asked
    def listens?
      connect(Listener.now + @timeout).close
      true
    rescue Unreachable
      false
    end

    # @api private
    # @raise [Unreachable] where there is no such process
    def check
      raise @target.silence unless @target.alive?
    end

    private

    def load(known, given)
      known.load(given)
    rescue ArgumentError => e
      raise Failed, "process #{@pid} answered what this memscope, #{VERSION}, does not know: #{e.message}"
    end

    def complain(kind, message)
      case kind
      when "ArgumentError" then raise ArgumentError, message
      when "Memscope::Purge::Busy" then raise Purge::Busy, message
      else raise Failed, "process #{@pid}: #{message}"
      end
    end

    def exchange(request)
      deadline = Listener.now + @timeout
      socket = connect(deadline)
      socket.write(request)
      parsed(read(socket, deadline))
    rescue IOError, SystemCallError => e
      raise Unreachable.new("process #{@pid} hung up: #{e.message}", @target.alive? ? :busy : :gone)
    ensure
      socket&.close
    end

    def parsed(text)
      answer = Remote.printable(JSON.parse(Field.text(text)))
      return answer if answer.is_a?(Hash)

      raise Failed, "process #{@pid} answered no object"
    rescue JSON::ParserError
      raise Failed, "process #{@pid} answered what is no JSON"
    end

    # Whoever began to listen must be that process, not a child that still holds its socket, nor somebody else.
    def connect(deadline)
      socket = Sockets.connect(@target.path)
      pid, uid = Sockets.peer(socket)
      return socket if pid == @pid && uid == @target.uid

      socket.close
      raise Unreachable.new("process #{pid} of uid #{uid} holds the socket of process #{@pid}", :untrusted)
    rescue Errno::EAGAIN
      raise too_slow if Listener.now > deadline

      sleep PAUSE
      retry
    rescue Errno::ECONNREFUSED, Errno::ENOENT
      raise @target.silence
    rescue Errno::EACCES
      raise Unreachable.new("process #{@pid} has its socket where this user may not look", :foreign)
    rescue SystemCallError => e # it is theirs, and may be of another type
      raise Unreachable.new("the socket of process #{@pid} cannot be used: #{e.class.new.message}", :untrusted)
    end

    def read(socket, deadline)
      text = +""
      until text.end_with?("\n")
        raise too_slow unless socket.wait_readable([deadline - Listener.now, 0].max)

        part = socket.read_nonblock(1 << 16, exception: false)
        raise EOFError, "no answer" if part.nil?

        text << part unless part == :wait_readable
        raise Failed, "process #{@pid} answered too much" if text.bytesize > LONGEST_ANSWER
      end
      text
    end

    def too_slow = Unreachable.new("process #{@pid} does not answer within #{@timeout} s", :busy)
  end
end
