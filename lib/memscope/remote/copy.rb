# frozen_string_literal: true

require_relative "external_process"
require_relative "../process/malloc_conf" # for another process's allocator
require_relative "../process/malloc_variables"
require_relative "copy/answers"
require_relative "copy/channel"
require_relative "copy/extension"

module Memscope
  # Readings of a Ruby process that does not listen, from a copy of it. A tracer (Native.open_copy) has the process fork
  # a child, which stops the process for as long as a fork does. It loads the extension into that child, the copy, asks
  # it, ends it, and has the process reap it. See docs/attach.md.
  #
  #   copy = Memscope::Copy.new(4711)
  #   copy.call(:ledger, deep: true)  # => Memscope::Ledger
  #   copy.close
  #
  # The copy's answers are not trusted: each field of a reading is checked.
  # @api private
  class Copy
    WORDS = Words.beside(__FILE__)
    # Milliseconds for which the process may be stopped; and those that stand for any pause and any need of memory.
    MAX_PAUSE_MS = 200
    ANY_PAUSE_MS = 60_000
    # The extension of a process that has loaded memscope, in its mappings.
    MAPPED = %r{/memscope\.so$}
    # Seconds to wait for a process that rests from a copy for ten times its pause, five times the predicted if busy.
    PATIENCE = 10 * 5 * MAX_PAUSE_MS / 1000
    # Milliseconds after which the tracer ends the copy.
    LIFETIME_MS = 120_000
    # The calls that a copy can answer. The others need a process that runs.
    CALLS = %i[allocator snapshot ledger arenas size_classes fragmentation mappings ruby_heap census heap_graph
               process_memory cgroup lint doctor dump].freeze

    attr_reader :pid

    # @param extension [String, nil] the path of memscope.so for that Ruby. nil: looks for it
    # @param long_pause [Boolean] whether the process may be stopped for more than MAX_PAUSE_MS
    # @raise [Client::Unreachable] if no copy can be made
    def initialize(pid, extension: nil, long_pause: false)
      @pid = pid
      memory = Native.process_memory(pid.to_s) # now: the copy shares all pages with the process
      @loaded = File.read("/proc/#{pid}/maps").match?(MAPPED) if File.readable?("/proc/#{pid}/maps")
      start(extension, long_pause)
      @answers = Answers.new(@channel, memory, pid: pid, ruby: @facts["ruby"], file: @facts["file"])
    rescue Client::Failed => e
      raise Client::Unreachable.new(e.is_a?(Refusal) ? e.sentence(pid) : e.message, :silent)
    end

    # @raise [Invalid] for an invalid call or option
    # @raise [Client::Failed] if a copy cannot answer this call, did not, or the answer is not understood
    # @raise [SystemCallError, Dump::Failed] if a dump cannot be written
    def call(name, **options)
      known = check(name, options)
      checked(known, read(name, known, options))
    rescue Invalid, Client::Failed, Dump::Failed, SystemCallError
      raise
    rescue StandardError => e # the answer has other parts than a reading
      raise failed(:not_understood, version: VERSION, why: Field.line("#{e.class}: #{e.message[0, 200]}"))
    end

    # Ends the copy. Does nothing the second time.
    def close = @facts.update(@channel.close)

    # @return [String] how long the process was stopped, and how long the copy lived
    def to_s
      WORDS.fill(@loaded ? :taken_beside : :taken,
                 pause: Quantity.milliseconds(pause_us), child: Quantity.pause(@facts["copy_ms"].to_f))
    end

    private

    # With the extension for another Ruby if the process runs one.
    def start(extension, long_pause)
      connect(extension || Extension.own, long_pause)
    rescue Refusal => e
      raise unless e.reason == :other_ruby

      ruby = e.arguments[1].to_s
      connect(extension || Extension.of(@pid, ruby), long_pause, ruby[/\A\d+\.\d+/])
    end

    def connect(extension, long_pause, ruby = nil)
      path = Extension.check(extension)
      pause = long_pause ? ANY_PAUSE_MS : MAX_PAUSE_MS
      @channel, @facts = Channel.open(@pid, LIFETIME_MS / 1000) do
        Native.open_copy(@pid, path, pause, LIFETIME_MS, false, 0, ruby)
      end
    rescue SystemCallError => e
      raise failed(:not_started, why: e.class.new.message)
    end

    def check(name, options)
      known = Calls::CALLS[name]
      raise failed(:live, call: name) if known && !CALLS.include?(name)

      Field.refuse("call", name, CALLS.join(", "), call: "Memscope::Copy#call") unless known
      known.check(name, options)
      known
    end

    def read(name, known, options)
      case name
      when :doctor then Loading.unit(:Doctor).diagnose(Diagnosis::Evidence.read(native: @answers, **options))
      when :heap_graph then Loading.unit(:HeapGraph).take(native: @answers, in: :process, **options)
      when :dump then write(**options)
      else Loading.reader(*known.reader).call(native: @answers, **options)
      end
    end

    def write(path:, format: :perfetto, **options)
      Loading.unit(:Dump).write(path, format: format.to_sym, native: @answers, **options)
    end

    # The time under the GVL is that for which the process was stopped. A copy shares all pages with the process.
    def checked(known, reading)
      body = JSON.parse(reading.to_json)
      body["cost"]["gvl_us"] = pause_us
      body["reasons"].transform_values! { |why| why.sub(Reasons.sentence(:shared), WORDS.fill(:shares, pid: @pid)) }
      known.load(body)
    rescue Invalid => e
      raise failed(:not_understood, version: VERSION, why: e.message)
    end

    def pause_us = @facts["pause_ns"].to_i / 1000

    def failed(text, **figures) = Client::Failed.new(WORDS.fill(text, { pid: @pid, **figures }))
  end
end
