# frozen_string_literal: true

module Memscope
  class Copy
    # The methods of Native and OwnRuby that readings call, answered by a copy of another process. The kernel's files on
    # the process are read here: those on the copy would tell nothing, since it shares the process's pages.
    class Answers
      JIT_BYTES = <<~RUBY
        [(::RubyVM::YJIT.runtime_stats&.[](:yjit_alloc_size) if defined?(::RubyVM::YJIT.runtime_stats)),
         (::RubyVM::ZJIT.stats&.[](:zjit_alloc_bytes) if defined?(::RubyVM::ZJIT.stats))].compact.sum
      RUBY

      attr_reader :ruby

      # `memory` was read before the copy was made. `file` is the copy's descriptor for a dump.
      def initialize(channel, memory, pid:, ruby:, file:)
        @channel = channel
        @memory = memory
        @pid = pid
        @ruby = ruby.to_s
        @file = file.to_i
        @process = ProcessIdentity.of(pid)
      end

      def own? = false

      def process = @pid.to_s

      def jit_bytes = @channel.value(JIT_BYTES)

      # The kernel counts the CPU time of another process in ticks.
      def facts
        status = File.read("/proc/#{@pid}/status")
        stat = ProcessIdentity.stat("/proc/#{@pid}/stat")
        cpus = status[/^Cpus_allowed:\s*(\S+)/, 1].delete(",").hex.digits(2).sum
        seconds = stat[11, 2].sum(&:to_i).fdiv(Etc.sysconf(Etc::SC_CLK_TCK))
        { **@channel.value(OwnRuby::FACTS), cpus: cpus, parent_pid: stat[1].to_i, cpu_seconds: seconds }
      end

      %i[allocator arenas heap_graph mappings size_classes snapshot].each do |name|
        define_method(name) { |*arguments| enveloped(value(name, *arguments)) }
      end

      %i[allocator_inputs allocator_settings environment_at_load gc_pause_ms].each do |name|
        define_method(name) { |*arguments| value(name, *arguments) }
      end

      # The copy itself shares all pages.
      def ledger(deep, shared, objects, strict)
        unshared(enveloped(value(:ledger, deep, false, objects, strict)), shared)
      end

      def object_blocks(shared, strict)
        body = enveloped(value(:object_blocks, false, strict))
        ledger, heap = body.values_at(:ledger, :ruby_heap)
        { **body, ledger: unshared(enveloped(ledger), shared), ruby_heap: heap && enveloped(heap) }
      end

      # In the copy, which has no other thread to wait for.
      def ruby_heap(collect, objects, _budget_us) = enveloped(value(:ruby_heap, collect, objects, nil))
      def census(collect, _budget_us, shared) = enveloped(value(:census, collect, nil, shared))

      # Why it is unknown which pages other processes share.
      def inherited = :shared # rubocop:disable Lint/MissingSuper -- not the hook

      def process_memory(_process) = enveloped(@memory)

      def cgroup(*arguments) = enveloped(Native.cgroup(*arguments))

      # The extension, new in the copy, has not sampled anything.
      def profile_inflation = nil

      # @return [Integer] its duration in microseconds
      def collect_garbage
        began = Cost.now
        value(:collect_garbage)
        Cost.now - began
      end

      # The copy writes to the tracer, which sends the bytes here. They are not buffered: if the dump fails, nothing may
      # be left to be written later, when another file has this descriptor.
      def dump(descriptor, *arguments)
        file = IO.for_fd(descriptor, autoclose: false).binmode
        file.sync = true
        answer = value(:dump, @file, *arguments) { |bytes| file.write(bytes) }
        answer.is_a?(Hash) ? enveloped(answer) : answer
      end

      private

      # Memscope::Native is a private constant where memscope is loaded. The expression is evaluated within some method
      # of the program, so it finds constants from the top.
      def value(name, *arguments, &)
        texts = arguments.map { |argument| argument.is_a?(String) ? argument.dump : argument.inspect }
        @channel.value("::Memscope.const_get(:Native).#{name}(#{texts.join(', ')})", &)
      end

      def enveloped(body) = { **body, memscope: VERSION, ruby: @ruby, pid: @pid, at: Clock.time, process: @process }

      def unshared(body, wanted) = body.tap { body[:reasons][:shared] = :shared if wanted }
    end
  end
end
