# frozen_string_literal: true

module Memscope
  # Facts of this process's Ruby that readings need, and that no method of the extension returns. A copy of another
  # process has the same methods.
  # @api private
  module OwnRuby
    # The facts that only the process itself knows, as a Hash. A copy of another process evaluates this too, within some
    # method of the program, so constants are named from the top. While allocations are traced, the line of a new object
    # is known. An object in the place of one that was traced earlier may seem to have that one's line, so each time it
    # is another line.
    FACTS = <<~RUBY
      line = ::GC.stat(:total_allocated_objects) & 0x3fff_ffff
      { ractors: ::Ractor.count,
        variables: ::ENV.select { |name, _value| name.start_with?("RUBY_GC_", "DYNO") },
        major_collections: (::GC.config[:rgengc_allow_full_mark] if ::GC.respond_to?(:config)),
        allocation_tracing: ::ObjectSpace.respond_to?(:allocation_sourceline) &&
          ::ObjectSpace.allocation_sourceline(::Kernel.eval("::Object.new", nil, "memscope", line)) == line }
    RUBY

    def own? = true

    # Its directory in /proc.
    def process = "self"

    def ruby = RUBY_VERSION

    # @return [Integer] malloc memory of just-in-time compilers, as far as this Ruby reports it
    def jit_bytes
      [(RubyVM::YJIT.runtime_stats&.[](:yjit_alloc_size) if defined?(RubyVM::YJIT.runtime_stats)),
       (RubyVM::ZJIT.stats&.[](:zjit_alloc_bytes) if defined?(RubyVM::ZJIT.stats))].compact.sum
    end

    # @return [Hash{Symbol => Object}] fields of a HostEnvironment
    def facts
      own = eval(FACTS) # rubocop:disable Security/Eval -- a constant
      { **own, cpus: Etc.nprocessors, parent_pid: Process.ppid,
               cpu_seconds: Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) }
    end
  end
  private_constant :OwnRuby
end
