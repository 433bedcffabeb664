# frozen_string_literal: true

require_relative "command"
require_relative "../profile/formats"

module Memscope
  module CLI
    # `memscope profile`: which lines hold the malloc memory of a process that listens; `memscope profile -- COMMAND`:
    # which lines hold that of a Ruby program, profiled from its first line until it ends.
    class ProfileCommand < Command
      NOTES = <<~TEXT
        The process must allow actions (its setting `actions`). The profile does not see
        allocations made before it started. The default backend is jemalloc's profiler,
        which must be enabled when the process starts (memscope exec --profile). If a
        profile is already running, it continues with its own backend and rate, and the
        report shows only the change during --seconds N.

        The report tells what survived a full garbage collection since it was
        allocated from what none has judged yet, which may be garbage. A longer profile
        sees more of the process's own collections; --gc adds one at its end.
      TEXT
      PROGRAM_NOTES = <<~TEXT
        Before it reports, memscope collects garbage, so that the report shows only live
        memory. The report goes to standard error, or to FILE. Each process that COMMAND
        forks, such as a Puma worker, also reports when it ends. Its report includes
        inherited memory and goes to standard error, or to FILE with its pid in the name
        (heap.4711.html). A process that calls exit! or is killed does not report, nor
        do other programs that COMMAND starts. For a running process that listens, use
        --pid. The exit status is COMMAND's own.

        Without --backend, the program starts with jemalloc and its profiler enabled, if
        such a jemalloc is installed and it is not 5.3.0, whose profiler can crash; else
        with the backend imports. The report names the backend.
      TEXT
      SAMPLING = [["--backend NAME", "jemalloc, or imports (GOT hooks)"],
                  ["--rate BYTES", Integer, "bytes between samples, a power of two"],
                  ["--format NAME", Profile::Formats::ALL.keys, Profile::Formats::ALL.keys.first(4).join(", "),
                   Profile::Formats::ALL.keys.drop(4).join(", ")], TEXT.last].freeze
      GENERATIONS = ["--generations SECONDS", Float, "start a new generation at this interval"].freeze
      DEFAULTS = { rate: MallocProfile::RATE, format: :text }.freeze
      FORMS = {
        process: { summary: "print which lines of Ruby hold malloc memory",
                   example: "memscope profile --pid 4711 --seconds 60", notes: NOTES,
                   defaults: { **DEFAULTS, seconds: 60.0 },
                   options: [*PROCESS, *SAMPLING, ["--seconds N", Float, "how long to profile"],
                             ["--gc", "collect garbage before the report"],
                             ["--from FILE", "print the profile in FILE (--format=json)"]] },
        program: { summary: "run a Ruby program and print which Ruby lines hold its malloc memory",
                   example: "memscope profile --format=html --output heap.html -- bundle exec rake import",
                   notes: PROGRAM_NOTES, defaults: DEFAULTS,
                   options: [*SAMPLING, ["--seconds N", Float, "profile the first N seconds only"], GENERATIONS] }
      }.freeze
      private_constant :FORMS, :NOTES, :PROGRAM_NOTES, :SAMPLING, :GENERATIONS, :DEFAULTS

      private

      def backend = @given.fetch(:backend, :auto).to_sym

      def check_options
        MallocProfile.check(rate: @given[:rate], backend: backend)
        %i[seconds generations].each { |name| check_seconds(name) }
      rescue ArgumentError => e
        usage_error("--#{e.message[/(rate|backend): .*/].gsub(/(?<= ):(?=\w)/, '')}")
      end

      def perform
        check_options
        refuse("--from excludes --pid and --socket") if from && other?
        usage_error("no process given; allowed: --pid N, --socket PATH, --from FILE, -- COMMAND") unless from || other?

        reserve_output { write(from ? read : asking { asked }) }
        FINE
      end

      # A profile that is already running is somebody else's: it continues, and only its change is reported. What has
      # survived a major GC is known for own profiles only.
      def asked = other.call(:malloc_profile_state).fetch("running") ? changed : recorded

      def changed
        earlier = other.call(:malloc_profile_snapshot)
        say("process #{earlier.pid} is being profiled already, with the backend #{earlier.backend} and one sample " \
            "for each #{earlier.rate_bytes} bytes: that profile continues, and this report is its change in " \
            "#{format('%g', @given[:seconds])} seconds")
        wait
        other.call(:malloc_profile_snapshot) - earlier
      end

      # If this command is killed, the other process stops profiling by itself.
      def recorded
        token = other.call(:malloc_profile_start, seconds: @given[:seconds], rate: @given[:rate], backend: backend)
        begin
          wait
        ensure
          profile = other.call(:malloc_profile_stop, token: token, **@given.slice(:gc))
        end
        profile
      end

      def wait
        sleep(@given[:seconds])
      rescue Interrupt
        say("stopped early")
      end

      def from = @given[:from]

      def read
        text = File.read(from, encoding: Encoding::UTF_8)
        kind = text[0, 200].match?(/"kind"\s*:\s*"profile_difference"/) ? Profile::Difference : Profile
        kind.from_json(text)
      rescue SystemCallError => e
        failure("--from #{from}: #{e.class.new.message}")
      rescue ArgumentError => e
        failure("--from #{from}: #{e.message}")
      end

      def write(profile)
        text = Profile::Formats.write(profile, @given[:format])
        output ? File.binwrite(output, text) : self.class.write(@out, text)
      rescue SystemCallError => e
        failure("--output #{output}: #{e.class.new.message}")
      rescue LoadError => e
        failure(e.message)
      end

      def start(program)
        check_options
        check_pprof if @given[:format] == :pprof
        refuse_other_programs(program, "be profiled")
        environment, backend = prepared
        hand_over("profile", program, environment, backend: backend, **order)
      end

      def check_pprof
        usage_error("--format=pprof is binary: give --output FILE") unless output

        require "google/protobuf"
      rescue LoadError
        failure("--format=pprof needs the gem google-protobuf: gem install google-protobuf")
      end

      def order = @given.slice(:rate, :format, :seconds, :generations)

      # The environment and the backend for the program. The environment makes jemalloc's profiler ready if that is
      # wanted and possible.
      def prepared
        return [Launch::Environment.new(ENV), :imports] if backend == :imports

        choice = Launch::AllocatorChoice.read(nil, ENV)
        raise Launch::Refusal, "the chosen allocator is #{choice.name}, which has no profiler" unless choice.library

        environment = Launch::Proof.environment(choice, MallocProfile::CONF, profiled: true)
        say("profiling with jemalloc's own profiler") if backend == :auto
        [environment, backend]
      rescue Launch::Refusal => e
        raise if backend == :jemalloc

        say("#{e.message}; profiling with the backend imports")
        [Launch::Environment.new(ENV), :imports]
      end
    end
  end
end
