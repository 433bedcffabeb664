# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope exec`: becomes a program whose malloc the chosen allocator serves, which the program proves.
    class ExecCommand < Command
      NOTES = <<~TEXT.freeze
        COMMAND starts with the allocator in LD_PRELOAD. Before a Ruby program runs its
        script, it proves that this allocator serves its malloc and heeds MALLOC_CONF,
        also if a script such as bundle or a shell becomes it by exec; otherwise it does
        not start. A program that takes no preload, being static, set-uid, or of another
        C library, is not started. memscope does not see which malloc a program binds
        that is not Ruby. The exit status is 74 if COMMAND is not started, 127 if it is
        not found, 126 if it cannot be executed, otherwise COMMAND's own.

        Without --allocator, the variable #{Launch::AllocatorChoice::VARIABLE} decides, which holds
        a value for --allocator; "off" starts COMMAND unchanged. Without the variable,
        the allocator is jemalloc.

        --profile is refused with jemalloc 5.3.0, which can crash when a thread ends
        while its profiler is enabled. `memscope profile --backend=imports` needs
        neither --profile nor a restart.
      TEXT
      FORMS = {
        program: { summary: "start a program whose malloc jemalloc serves, proved in the program",
                   example: "memscope exec --conf=background_thread:true -- bundle exec puma", notes: NOTES,
                   options: [["--allocator NAME", "jemalloc (default), glibc, off, or", "the path of a library"],
                             ["--conf PAIRS", "merge into MALLOC_CONF, replacing keys"],
                             ["--profile", "enable jemalloc's profiler, for", "memscope profile and MallocProfile"]] }
      }.freeze
      private_constant :FORMS, :NOTES

      private

      # --conf may be repeated; --profile is shorthand for --conf with MallocProfile::CONF.
      def give(name, value)
        super if name == :profile
        return super unless %i[conf profile].include?(name)

        @given[:conf] = [*@given[:conf], name == :conf ? value : MallocProfile::CONF].join(",")
      end

      def start(program)
        choice = Launch::AllocatorChoice.read(@given[:allocator], ENV)
        conf, profiled = @given.values_at(:conf, :profile)
        usage_error("--conf is for jemalloc; #{choice.name} does not read it") if conf && !choice.configurable?
        return become(program, Launch::Environment.new(ENV)) if choice.off?

        become(program, allocated(program, choice, conf, profiled: profiled))
      end
    end
  end
end
