# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope exec`: becomes a program whose malloc the chosen allocator serves, which the program proves.
    class ExecCommand < Command
      ALLOCATORS = Limit.new(:itself.to_proc, ->(name) { %w[jemalloc glibc].include?(name) || name.include?("/") },
                             WORDS[:allocator]).freeze

      declare limits: { allocator: ALLOCATORS }, defaults: { allocator: "jemalloc" }

      private

      # --profile is shorthand for --conf with MallocProfile::CONF.
      def start
        conf, profiled, allocator = @given.values_at(:conf, :profile, :allocator)
        usage_error(:conf_for_glibc) if conf && allocator == "glibc"

        allocator = File.expand_path(allocator) if allocator.include?("/")
        become(served(allocator, [*conf, *(MallocProfile::CONF if profiled)].join(","), profiled: profiled))
      end
    end
  end
end
