# frozen_string_literal: true

module Memscope
  # Facts of this process's Ruby that readings need, and that no method of the extension returns. A copy of another
  # process has the same methods.
  # @api private
  module OwnRuby
    def own? = true

    # Its directory in /proc.
    def process = "self"

    def ruby = RUBY_VERSION

    # @return [Integer] malloc memory of just-in-time compilers, as far as this Ruby reports it
    def jit_bytes
      [(RubyVM::YJIT.runtime_stats&.[](:yjit_alloc_size) if defined?(RubyVM::YJIT.runtime_stats)),
       (RubyVM::ZJIT.stats&.[](:zjit_alloc_bytes) if defined?(RubyVM::ZJIT.stats))].compact.sum
    end

    # @return [Hash{Symbol => Object}] fields of a HostEnvironment, with all environment variables
    def facts
      { cpus: Etc.nprocessors, ractors: Ractor.count, parent_pid: Process.ppid, variables: ENV,
        cpu_seconds: Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID),
        major_collections: (GC.config[:rgengc_allow_full_mark] if GC.respond_to?(:config)),
        allocation_tracing: allocation_tracing? }
    end

    private

    # While allocations are traced, the line of a new object is known. An object in the place of one that was traced
    # earlier may seem to have that one's line, so each call has a line of its own.
    def allocation_tracing?
      return false unless ObjectSpace.respond_to?(:allocation_sourceline)

      line = GC.stat(:total_allocated_objects) & 0x3fff_ffff
      ObjectSpace.allocation_sourceline(eval("Object.new", nil, __FILE__, line)) == line
    end
  end
  private_constant :OwnRuby
end
