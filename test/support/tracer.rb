# frozen_string_literal: true

require "json"
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
  # without one. cost: of the copy; nil if it did not end as it should.
  Outcome = Struct.new(:facts, :answers, :refusal, :cost, keyword_init: true)

  class << self
    # @param expressions [Array<String>] to evaluate in the copy
    # @param forward [Boolean] always runs the copy on to a safe point
    # @param ruby [String, nil] the minor version that the extension is for, nil for this one
    # @param die_at [Integer] the number of the call of ptrace at which the tracer is killed; 0 for never
    # @return [Outcome]
    def copy(pid, *expressions, extension: EXTENSION, pause_limit_ms: 60_000, deadline_ms: 60_000, forward: false,
             die_at: 0, ruby: nil)
      order = [pid, extension, pause_limit_ms, deadline_ms, forward, die_at, ruby]
      deadline = now + PATIENCE
      loop do
        outcome = once(order, expressions)
        return outcome if now > deadline || !PASSING.include?(outcome.refusal&.first)

        sleep 0.01
      end
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    private

    def once(order, expressions)
      socket = UNIXSocket.for_fd(Memscope.const_get(:Native).open_copy(*order))
      outcome = Outcome.new(answers: [])
      receive(socket, outcome)
      expressions.each { |expression| ask(socket, expression, outcome) } if outcome.facts
      ask(socket, "", outcome) if outcome.facts && !outcome.refusal
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

    # Nothing comes from a tracer that was killed.
    def receive(socket, outcome)
      kind, _zero, length = socket.read(16)&.unpack("LLQ")
      text = kind && socket.read(length)
      case kind && KINDS.fetch(kind)
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
