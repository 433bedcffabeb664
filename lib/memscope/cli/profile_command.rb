# frozen_string_literal: true

require_relative "command"
require_relative "../profile/formats"

module Memscope
  module CLI
    # `memscope profile`: which lines hold the malloc memory of a process that listens; `memscope profile -- COMMAND`:
    # of a Ruby program, from its first line until it ends.
    class ProfileCommand < Command
      TITLE = "profile"
      NOTES = <<~TEXT
        memscope profiles process N for so many seconds, unless its setting `actions` is
        false. Earlier allocations are unknown. The default backend is jemalloc's own
        profiler, which must be ready from the start (memscope exec --profile). If a profile
        is running already, it continues, with its own backend and rate; the report is its
        change in so many seconds, and says so.
      TEXT
      PROGRAM_NOTES = <<~TEXT
        memscope collects garbage first, so that the report shows what stays. The report
        goes to standard error, or to FILE. Each process that COMMAND forks, such as a Puma
        worker, reports when it ends, with what it inherited: to standard error, or to FILE
        with its pid in the name (heap.4711.html). No report if a process calls exit! or is
        killed, nor from other programs that COMMAND starts. To profile a process that is
        running and listens (MEMSCOPE_LISTEN=1), use --pid. The exit status is COMMAND's own.

        Without --backend, the program starts under a jemalloc with its profiler ready, if
        there is one, else with the backend imports; the report names the backend.
      TEXT
      FORMS = {
        process: { summary: "print which lines of Ruby hold malloc memory",
                   example: "memscope profile --pid 4711 --seconds 60", notes: NOTES },
        program: { summary: "run a Ruby program and print which Ruby lines hold its malloc memory when it ends",
                   example: "memscope profile --format=html --output heap.html -- bundle exec rake import",
                   notes: PROGRAM_NOTES }
      }.freeze
      private_constant :NOTES, :PROGRAM_NOTES

      private

      def declare(parser)
        @seconds = 60.0
        declare_pid(parser)
        declare_sampling(parser)
        parser.on("--seconds N", Float, "how long to profile (60)") { |n| @seconds = n }
        parser.on("--from FILE", "instead, read FILE, which --format=json wrote") { |path| @from = path }
        declare_format(parser)
      end

      def declare_program(parser)
        declare_sampling(parser)
        declare_format(parser)
        parser.on("--seconds N", Float, "profile the first N seconds only, then report") { |n| @seconds = n }
        declare_generations(parser)
      end

      def declare_sampling(parser, rate = MallocProfile::RATE)
        @rate = rate
        parser.on("--backend NAME", "jemalloc, or imports (for any malloc)") { |name| @backend = name.to_sym }
        parser.on("--rate BYTES", Integer, "bytes between samples, a power of two", "(#{rate})") { |n| @rate = n }
      end

      def declare_format(parser)
        @format = :text
        names = Profile::Formats::ALL.keys
        parser.on("--format NAME", names, *names.each_slice(4).map { |some| some.join(", ") }) { |name| @format = name }
        declare_output(parser)
      end

      def declare_generations(parser)
        parser.on("--generations SECONDS", Float, "begin a generation at this interval") { |n| @generations = n }
      end

      def check_options
        MallocProfile.check(rate: @rate, backend: @backend || :auto)
        check_seconds("seconds", @seconds)
        check_seconds("generations", @generations)
      rescue ArgumentError => e
        usage_error("--#{e.message[/(rate|backend): .*/].gsub(/(?<= ):(?=\w)/, '')}")
      end

      def perform
        check_options
        refuse("--from excludes --pid and --socket") if @from && other?
        usage_error("no process given; allowed: --pid N, --socket PATH, --from FILE, -- COMMAND") unless @from || other?

        reserve_output { write(@from ? read : asking { asked }) }
        FINE
      end

      # A profile that runs already belongs to somebody else.
      def asked = other.call(:malloc_profile_state).fetch("running") ? changed : recorded

      def changed
        earlier = other.call(:malloc_profile_snapshot)
        say("process #{earlier.pid} is being profiled already, with the backend #{earlier.backend} and one sample " \
            "for each #{earlier.rate_bytes} bytes: that profile continues, and this report is its change in " \
            "#{format('%g', @seconds)} seconds")
        wait
        other.call(:malloc_profile_snapshot) - earlier
      end

      # If this command is killed, the other process stops profiling by itself.
      def recorded
        token = other.call(:malloc_profile_start, seconds: @seconds, rate: @rate, backend: @backend || :auto)
        begin
          wait
        rescue SignalException
          other.call(:malloc_profile_stop, token: token)
          raise
        end
        other.call(:malloc_profile_stop, token: token)
      end

      def wait
        sleep(@seconds)
      rescue Interrupt
        say("stopped early")
      end

      def read
        text = File.read(@from, encoding: Encoding::UTF_8)
        kind = text[0, 200].match?(/"kind"\s*:\s*"profile_difference"/) ? Profile::Difference : Profile
        kind.from_json(text)
      rescue SystemCallError => e
        failure("--from #{@from}: #{e.class.new.message}")
      rescue ArgumentError => e
        failure("--from #{@from}: #{e.message}")
      end

      def write(profile)
        text = Profile::Formats.write(profile, @format)
        @output ? File.binwrite(@output, text) : self.class.write(@out, text)
      rescue SystemCallError => e
        failure("--output #{@output}: #{e.class.new.message}")
      rescue LoadError => e
        failure(e.message)
      end

      def start(program)
        check_options
        check_pprof if @format == :pprof
        refuse_other_programs(program, "be profiled")
        environment = prepared
        hand_over("profile", program, environment, **order)
      end

      def check_pprof
        usage_error("--format=pprof is binary: give --output FILE") unless @output

        require "google/protobuf"
      rescue LoadError
        failure("--format=pprof needs the gem google-protobuf: gem install google-protobuf")
      end

      def order
        { backend: @backend, rate: @rate, format: @format, seconds: @seconds, generations: @generations }
      end

      # The environment, with a jemalloc whose profiler is ready if that is wanted and possible.
      def prepared
        return Launch::Environment.new(ENV) if @backend == :imports

        environment = with_jemalloc
        @backend ||= :auto
        environment
      rescue Launch::Refusal => e
        raise if @backend == :jemalloc

        say("#{e.message}; profiling with the backend imports")
        @backend = :imports
        Launch::Environment.new(ENV)
      end

      def with_jemalloc
        choice = Launch::AllocatorChoice.read(nil, ENV)
        raise Launch::Refusal, "the chosen allocator is #{choice.name}, which has no profiler" unless choice.library

        environment = Launch::Environment.new(ENV)
        environment.preload(choice.library)
        environment.configure(MallocProfile::CONF)
        allocator = Launch::Proof.before(choice, environment.changes)
        raise Launch::Refusal, "#{choice.name} is #{allocator}, which has no profiler" if allocator != "jemalloc"

        say("profiling with jemalloc's own profiler") unless @backend
        environment
      end
    end
  end
end
