# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope exec`: becomes a program whose malloc the chosen allocator serves, which the program proves.
    class ExecCommand < Command
      NOTES = <<~TEXT
        COMMAND starts with the allocator in LD_PRELOAD. Before a Ruby program runs its
        script, it proves that this allocator serves its malloc and heeds MALLOC_CONF;
        otherwise it does not start. Other programs prove nothing. The exit status is 74
        if COMMAND is not started, 127 if it is not found, 126 if it cannot be executed,
        otherwise COMMAND's own.

        --profile is refused with jemalloc 5.3.0, whose profiler can crash.
      TEXT
      ALLOCATORS = Limit.new(:itself.to_proc, ->(name) { %w[jemalloc glibc].include?(name) || name.include?("/") },
                             "jemalloc, glibc, or the path of a shared library").freeze
      private_constant :NOTES, :ALLOCATORS

      declare "start a program whose malloc jemalloc serves, proved in the program",
              "memscope exec --conf=background_thread:true -- bundle exec puma",
              options: [["--allocator NAME", ALLOCATORS, "jemalloc, glibc, or the path of a library"],
                        ["--conf PAIRS", "merge into MALLOC_CONF, replacing keys"],
                        ["--profile", "enable jemalloc's profiler, for", "memscope profile and MallocProfile"]],
              program: [], process: nil, notes: NOTES, defaults: { allocator: "jemalloc" }

      private

      # --profile is shorthand for --conf with MallocProfile::CONF.
      def start
        conf, profiled, allocator = @given.values_at(:conf, :profile, :allocator)
        usage_error("--conf is for jemalloc; glibc does not read it") if conf && allocator == "glibc"

        allocator = File.expand_path(allocator) if allocator.include?("/")
        become(served(allocator, [*conf, *(MallocProfile::CONF if profiled)].join(","), profiled: profiled))
      end
    end
  end
end
