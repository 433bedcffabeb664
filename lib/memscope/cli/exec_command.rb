# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope exec`: becomes a program, after proving that the chosen allocator will serve its malloc.
    class ExecCommand < Command
      NOTES = <<~TEXT.freeze
        Without --if-present, COMMAND starts only if memscope has verified that the
        allocator will serve its malloc. A Ruby program repeats the check before it runs
        its script. For other programs, the dynamic linker says which malloc they would
        bind; memscope cannot see a malloc that a program does not export. The exit
        status is 74 if the check fails, 127 if COMMAND is not found, 126 if it cannot
        be executed, otherwise COMMAND's own.

        Without --allocator, the first of these that exists decides: the variable
        #{Launch::AllocatorChoice::VARIABLE}, the file that #{Launch::AllocatorChoice::FILE_VARIABLE} names,
        memscope/allocator in $XDG_CONFIG_HOME, #{Launch::AllocatorChoice::HOST_FILE}. Each
        holds a value for --allocator; "off" starts COMMAND unchanged. If none of them
        exists, the allocator is jemalloc.

        --profile is refused with jemalloc 5.3.0, which can crash when a thread ends
        while its profiler is enabled. `memscope profile --backend=imports` needs
        neither --profile nor a restart.
      TEXT
      FORMS = {
        program: { summary: "start a program after verifying that jemalloc will serve its malloc",
                   example: "memscope exec --conf=background_thread:true -- bundle exec puma", notes: NOTES,
                   options: [["--allocator NAME", "jemalloc (default), glibc, off, or", "the path of a library"],
                             ["--conf PAIRS", "merge into MALLOC_CONF, replacing keys"],
                             ["--profile", "enable jemalloc's profiler, for", "memscope profile and MallocProfile"],
                             ["--if-present", "if the check fails, start COMMAND unchanged"]] }
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
        usage_error("--conf is for jemalloc; #{choice.name} does not read it") if @given[:conf] && !choice.configurable?

        become(program, choice.off? ? Launch::Environment.new(ENV) : proved(program, choice))
      end

      def proved(program, choice)
        environment = Launch::Proof.environment(choice, @given[:conf], profiled: @given.key?(:profile))
        objection = program.objection(choice.library, environment.changes)
        raise Launch::Refusal, objection if objection

        if program.ruby?
          Launch::Handoff.write("prove", environment, title: self.class.title, status: INPUT_OUTPUT,
                                                      expected: choice.name, if_present: @given[:if_present])
        end
        refuse_assignments(program, environment) { |name| choice.decided_by?(name) }
        environment
      rescue Launch::Refusal => e
        raise unless @given[:if_present]

        say("#{e.message}; #{@command.first} starts unchanged (--if-present)")
        Launch::Environment.new(ENV)
      end
    end
  end
end
