# frozen_string_literal: true

require "json"
require "securerandom"
require "socket"
require "memscope"

# Private copies of other Ruby processes, as the tracer (ext/memscope/engine/attach/tracer.h) makes them.
module Tracer
  KINDS = %i[ready value refused raised ended dump].freeze
  EXTENSION = $LOADED_FEATURES.grep(%r{/memscope/memscope\.so\z}).first
  # Refusals that pass: another tracer is at work, or rests.
  PASSING = %w[resting too_soon busy].freeze
  # Seconds in which they must pass.
  PATIENCE = 120

  # facts: of the pause; nil without a copy. answers: the JSON of each expression. refusal: its name and arguments, nil
  # without one. cost: of the copy; nil if it did not end as it should. seconds: in which all that came.
  Outcome = Struct.new(:facts, :answers, :refusal, :cost, :seconds, keyword_init: true)

  class << self
    # @param expressions [Array<String>] to evaluate in the copy
    # @param extension [String] the path of the extension for the process's Ruby
    # @param ruby [String, nil] the version of that Ruby, as "3.4"; nil: this one's
    # @param forward [Boolean] always runs the copy on to a safe point
    # @param die_at [Integer] the number of the call of ptrace at which the tracer is killed; 0 for never
    # @yield once the tracer runs
    # @return [Outcome]
    def copy(pid, *expressions, extension: EXTENSION, ruby: nil, pause_limit_ms: 60_000, deadline_ms: 60_000,
             forward: false, die_at: 0)
      patiently do
        socket = native.open_copy(pid, extension, pause_limit_ms, deadline_ms, forward, die_at, ruby)
        yield if block_given?
        converse(socket, *expressions, "")
      end
    end

    # Has the live process evaluate a text in a new thread, which sleeps after it until the tracer has seen it.
    #
    # @yield once the tracer runs
    # @return [Outcome]
    def evaluate(pid, body, ...) = post(pid, "::Thread.new { #{body}; ::Kernel.sleep 1 }", ...)

    # Likewise a text that creates a thread. Its name is another one each time, as that of Memscope::Attachment.
    def post(pid, text, deadline_ms: 30_000, die_at: 0)
      patiently do
        socket = native.evaluate_in(pid, text, "memscope-#{SecureRandom.hex(3)}", deadline_ms, die_at)
        yield if block_given?
        converse(socket)
      end
    end

    # Kills the tracer of a process, which holds the lock on it: a socket that the process's number names.
    #
    # @return [Boolean] whether there was one
    def kill(pid)
      lock = File.foreach("/proc/net/unix").find { |line| line.include?(" @memscope-copy-#{pid}-") } or return false
      socket = "socket:[#{lock.split[6]}]"
      tracer = Dir["/proc/[0-9]*"].find { |path| tracer?(path, socket) } or return false
      Process.kill(:KILL, Integer(File.basename(tracer)))
      true
    rescue Errno::ESRCH
      false
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    private

    def tracer?(path, socket)
      File.read("#{path}/comm") == "memscope\n" && Dir["#{path}/fd/*"].any? { |file| File.readlink(file) == socket }
    rescue SystemCallError
      false # it has ended
    end

    def native = Memscope.const_get(:Native)

    # The first outcome that is not a refusal that passes.
    def patiently
      deadline = now + PATIENCE
      loop do
        began = now
        outcome = yield
        outcome.seconds = now - began
        return outcome if now > deadline || !PASSING.include?(outcome.refusal&.first)

        sleep 0.01
      end
    end

    # The last request, "", ends a copy.
    def converse(descriptor, *requests)
      socket = UNIXSocket.for_fd(descriptor)
      outcome = Outcome.new(answers: [])
      receive(socket, outcome)
      requests.each { |request| ask(socket, request, outcome) if outcome.facts && !outcome.refusal }
      outcome
    rescue Errno::EPIPE
      outcome
    ensure
      socket&.close
    end

    def ask(socket, expression, outcome)
      socket.write([expression.bytesize].pack("Q"), expression)
      receive(socket, outcome)
    end

    # Nothing comes from a tracer that was killed, or a part.
    def receive(socket, outcome)
      kind, _zero, length = socket.read(16)&.unpack("LLQ")
      text = kind && socket.read(length)
      return if text.nil? || text.bytesize < length

      case KINDS.fetch(kind)
      when :ready then outcome.facts = figures(text)
      when :value, :raised then outcome.answers << text
      when :refused then outcome.refusal = text.split("\n")
      when :ended then outcome.cost = figures(text)
      end
    rescue Errno::ECONNRESET
      nil
    end

    def figures(text) = text.lines(chomp: true).to_h { |line| line.split("=", 2) }
  end
end
