# frozen_string_literal: true

require_relative "../value/loading"
require_relative "../value/loader" # before several threads need it at once
Memscope::Loading.unit :Listener

module Memscope
  # Asks another process for its readings. That process must listen (Memscope.listen, MEMSCOPE_LISTEN=1) and belong to
  # the same user, unless root asks.
  #
  #   Memscope::Client.new(4711).call(:ledger, deep: true)   # => Memscope::Ledger
  #
  # The answer is not trusted: terminal control characters in it are replaced.
  class Client
    # The process cannot be reached; the message says why.
    class Unreachable < StandardError
      # @return [Symbol] :gone, :foreign (another user's), :silent (it does not listen), :busy (it does not answer, or
      #   cannot be asked now) or :untrusted (another process answers)
      attr_reader :why

      # @api private
      def initialize(message, why)
        super(message)
        @why = why
      end
    end

    # The process could not answer, or this memscope does not understand the answer; the message says which.
    class Failed < StandardError; end

    require_relative "client_target" # a class inside this one

    # The largest answer, in bytes.
    LONGEST_ANSWER = 64 * 1024 * 1024
    # Seconds between two attempts to connect while the listener's backlog is full.
    PAUSE = 0.05
    private_constant :PAUSE

    # A client of the process that listens at a path, such as the path given to Memscope.listen. A pid alone leads only
    # to a socket named PID.sock, or to the one that MEMSCOPE_LISTEN names.
    #
    # @param path [String] the path of the socket
    # @param timeout [Numeric] seconds to wait for an answer
    # @return [Client]
    # @raise [ArgumentError] unless the path is absolute, and short enough for a socket
    # @raise [Unreachable] if no process listens there, or if the socket or its directory is another user's, open to
    #   others, or a link
    def self.at(path, timeout: 60) = new(Target.listening_at(path), path: path, timeout: timeout)

    # @return [Integer]
    attr_reader :pid

    # @param pid [Integer]
    # @param path [String, nil] the path of its socket, if the pid alone does not lead to it
    # @param timeout [Numeric] seconds to wait for an answer
    # @raise [ArgumentError] unless `pid` can be a process ID, and `timeout` is positive
    def initialize(pid, path: nil, timeout: 60)
      seconds = timeout.is_a?(Numeric) && timeout.real? && timeout.positive?
      Field.refuse("timeout", timeout, "seconds above 0", call: "Memscope::Client.new") unless seconds
      @target = Target.new(pid, path)
      @pid = pid
      @timeout = timeout
    end

    # @param name [Symbol] the name of a call: rss, allocator, snapshot, ledger, arenas, size_classes, fragmentation,
    #   mappings, ruby_heap, census, heap_graph, process_memory, cgroup, history, verdict, lint, doctor, workers, tags,
    #   purge, dump, and malloc_profile_state, malloc_profile_snapshot, malloc_profile_start, malloc_profile_stop, and
    #   the same four calls for object_profile; Calls::CALLS has those of the pages, too
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
    #   connected before; does not wait for that
    def listens?
      connect&.close
      true
    rescue Unreachable
      false
    end

    # @api private
    # @raise [Unreachable] if there is no such process
    def check = @target.check

    private

    def request(name, options)
      JSON.generate(call: name, options: options)
    rescue JSON::GeneratorError, EncodingError
      Field.refuse("options of #{name}", options, "text in UTF-8", call: "Memscope::Client#call")
    end

    def load(known, given)
      known.load(given)
    rescue ArgumentError => e
      raise Failed, "memscope #{VERSION} does not understand the answer of process #{@pid}: #{e.message}"
    end

    def complain(answer)
      error, argument, given, allowed, call =
        answer.values_at("error", "argument", "given", "allowed", "call").map { |text| text && Field.text(text.to_s) }
      case answer["kind"]
      when "Memscope::Invalid" then raise Invalid.new(argument, given, allowed, call: call)
      when "Memscope::Purge::Busy" then raise Purge::Busy, error
      else raise Failed, "process #{@pid}: #{error}"
      end
    end

    def exchange(request)
      deadline = Clock.now + @timeout
      socket = connected(deadline)
      socket.write(request)
      parsed(read(socket, deadline))
    rescue IOError, SystemCallError => e
      raise Unreachable.new("process #{@pid} hung up: #{e.message}", @target.alive? ? :busy : :gone)
    ensure
      socket&.close
    end

    def parsed(text)
      answer = JSON.parse(Field.utf8(text))
      return answer if answer.is_a?(Hash)

      raise Failed, "the answer of process #{@pid} is not a JSON object"
    rescue JSON::ParserError
      raise Failed, "the answer of process #{@pid} is not JSON"
    end

    def connected(deadline)
      until (socket = connect)
        raise too_slow if Clock.now > deadline

        sleep PAUSE
      end
      socket
    end

    # The listener must be the requested process: not a child that inherited the socket, nor any other process. Returns
    # nil while the listener's backlog is full.
    def connect
      socket = Sockets.connect(@target.path)
      pid, uid = Sockets.peer(socket)
      return socket if pid == @pid && uid == @target.uid

      socket.close
      raise Unreachable.new("process #{pid} of uid #{uid} holds the socket of process #{@pid}", :untrusted)
    rescue Errno::EAGAIN
      nil
    rescue Errno::ECONNREFUSED, Errno::ENOENT
      raise @target.silence
    rescue Errno::EACCES
      raise Unreachable.new("this user may not enter the directory of process #{@pid}'s socket", :foreign)
    rescue SystemCallError => e # for instance a socket of another type
      raise Unreachable.new("the socket of process #{@pid} cannot be used: #{e.class.new.message}", :untrusted)
    end

    def read(socket, deadline)
      text = +""
      buffer = +"" # of 64 KiB, which are freed at once
      until text.end_with?("\n")
        raise too_slow unless socket.wait_readable([deadline - Clock.now, 0].max)

        part = socket.read_nonblock(1 << 16, buffer, exception: false)
        raise EOFError, "no answer" if part.nil?

        text << part unless part == :wait_readable
        raise Failed, "the answer of process #{@pid} is too long" if text.bytesize > LONGEST_ANSWER
      end
      text
    ensure
      buffer.clear
    end

    def too_slow = Unreachable.new("process #{@pid} does not answer within #{@timeout} s", :busy)
  end
end
