# frozen_string_literal: true

require "json"
require "socket"
require "memscope/remote/copy"

# Takes copies of this process from a FakeTracer.
module Copying
  # @param options [Hash] of the FakeTracer, and of the Copy
  # @yieldparam copy [Memscope::Copy]
  def with_copy(pid: Process.pid, extension: nil, long_pause: false, **options)
    @tracer = FakeTracer.new(**options)
    @tracer.open do
      copy = Memscope::Copy.new(pid, extension: extension, long_pause: long_pause)
      yield copy
    ensure
      copy&.close
    end
  end
end

# The other side of a Copy's socket: a thread that answers as the tracer does, out of this process instead of a copy.
class FakeTracer
  KINDS = Memscope::Copy::Channel::KINDS
  # A dump goes nowhere: tests choose the parts that are sent.
  NOWHERE = File.open(File::NULL, "wb")
  READY = { pause_ns: 3_000_000, attempts: 1, thread: 4711, ruby: RUBY_VERSION, rss_bytes: 1 << 24,
            file: NOWHERE.fileno }.freeze

  # @return [Array<String>] the expressions that it was sent
  attr_reader :expressions
  # @return [Array<Array>] the arguments that Native.open_copy was called with
  attr_reader :calls

  # @param refusal [String, nil] sent instead of being ready
  # @param answers [String, #call, nil] sent for each expression, instead of its value
  # @param ends [Regexp, nil] the expressions at which it ends
  # @param writes [Array<String>] sent before each answer, as parts of a file
  def initialize(refusal: nil, answers: nil, ends: nil, writes: [])
    @refusal = refusal
    @answers = answers
    @ends = ends
    @writes = writes
    @expressions = []
    @calls = []
  end

  # In place of Native.open_copy.
  def call(*arguments)
    @calls << arguments
    ours, theirs = UNIXSocket.pair
    Thread.new { serve(theirs) }.report_on_exception = false
    ours.fileno.tap { ours.autoclose = false }
  end

  # Runs a block in which Native.open_copy is this tracer.
  def open(&)
    native = Memscope.const_get(:Native)
    original = native.method(:open_copy)
    tracer = self
    native.define_singleton_method(:open_copy) { |*arguments| tracer.call(*arguments) }
    yield
  ensure
    native.define_singleton_method(:open_copy, original)
  end

  def self.message(kind, bytes, length = bytes.bytesize) = [KINDS.fetch(kind), 0, length].pack("LLQ") + bytes

  private

  def serve(socket)
    return socket.write(FakeTracer.message(:refused, @refusal)) if @refusal

    socket.write(FakeTracer.message(:ready, READY.map { |pair| "#{pair.join('=')}\n" }.join))
    while (length = socket.read(8)&.unpack1("Q"))&.positive?
      answer(socket, (@expressions << socket.read(length)).last) or return
    end
    socket.write(FakeTracer.message(:ended, "copy_ms=2200\nreap_ns=100000\n")) if length&.zero?
  rescue Errno::EPIPE
    nil # nobody reads
  ensure
    socket.close
  end

  def answer(socket, expression)
    @writes.each { |part| socket.write(FakeTracer.message(:file, part)) } if expression.include?(".dump(")
    return if @ends&.match?(expression)

    socket.write(@answers.respond_to?(:call) ? @answers.call(expression) : @answers || evaluated(expression))
  end

  def evaluated(expression)
    FakeTracer.message(:value, Memscope.const_get(:Native).copied(expression))
  rescue StandardError => e
    FakeTracer.message(:raised, "#{e.class}: #{e.message}")
  end
end
