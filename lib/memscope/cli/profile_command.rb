# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope profile`: which lines allocated the live malloc memory of a process that listens; `memscope profile --
    # COMMAND`: profiles a Ruby program from its first line until it ends. With --objects, which lines allocated live
    # Ruby objects.
    class ProfileCommand < Command
      NOTES = <<~TEXT
        The process must allow actions (its setting `actions`). The profile does not see
        allocations made before it started. Backend `auto` is jemalloc's profiler, if
        that was enabled when the process started (memscope exec --profile), else
        `imports`, which needs no settings: it patches the process's calls to malloc
        while the profile runs. The report names the backend. If a profile is already
        running, it continues with its own backend and rate, and the report shows only
        the change during --seconds N.

        The report separates memory that has survived a full garbage collection from
        memory that was allocated after the last one, which may be garbage. A longer
        profile sees more of the process's own collections; --gc adds one at its end.

        With --objects, the report shows which lines allocated live objects, and their
        classes (--by class). The profile takes --budget of the process's CPU time: the
        default is 0.01; 1 watches every allocation. A Ractor that the process creates
        ends the profile.

        With -- COMMAND, before it reports, memscope collects garbage, so that the
        report shows only live memory. The report goes to standard error, or to FILE.
        Each process that COMMAND forks, such as a Puma worker, also reports when it
        ends. Its report includes inherited memory and goes to standard error, or to
        FILE with its pid in the name (heap.4711.html). A process that calls exit! or is
        killed does not report, nor do other programs that COMMAND starts. For a running
        process that listens, use --pid. The exit status is COMMAND's own.

        Backend `auto` is jemalloc's profiler, if the program starts with it enabled
        (memscope exec --profile), else `imports`. Backend `jemalloc` starts the program
        under jemalloc, with its profiler; not under 5.3.0, whose profiler can crash.
      TEXT
      GROUPINGS = (Profile::GROUPINGS | Profile::OBJECT_GROUPINGS).freeze
      BUDGETS = Limit.new(ObjectProfile.method(:budget?), "a number above 0, at most 1").freeze
      # Enables jemalloc's profiler, which counts freed memory too.
      PROFILER = "#{MallocProfile::CONF},#{MallocProfile::ACCUMULATED}".freeze
      private_constant :NOTES, :GROUPINGS, :BUDGETS, :PROFILER

      declare "print which Ruby lines allocated live memory or objects",
              "memscope profile --pid 4711 --seconds 60", "memscope profile --objects --pid 4711 --by class",
              "memscope profile --format=html --output heap.html -- bundle exec rake import",
              options: [*PROCESS, ["--objects", "profile Ruby objects instead of malloc memory"],
                        ["--budget SHARE", Float, BUDGETS, "with --objects: the share of CPU time to take"],
                        ["--backend NAME", MallocProfile::BACKENDS, "jemalloc, imports (GOT hooks) or auto (default)"],
                        ["--rate BYTES", NUMBER,
                         Limit.new(MallocProfile.method(:rate?), "a power of two, from 512 to 1073741824"),
                         "bytes between samples, a power of two", "(default: #{MallocProfile::RATE})"],
                        ["--format NAME", Profile::FORMATS.keys, Profile::FORMATS.keys.join(", ")],
                        ["--by NAME", GROUPINGS, "group the report by #{GROUPINGS.first(4).join(', ')},",
                         GROUPINGS.drop(4).join(", "), "caller: the nearest line of the application",
                         "class needs --objects; native needs malloc"],
                        TEXT.last,
                        ["--seconds N", Float, SECONDS, "how long to profile (default: 60; COMMAND:", "until it ends)"],
                        ["--gc", "collect garbage before the report"],
                        ["--from FILE", "print a profile saved earlier in FILE", "with --format=json"]],
              program: [], process: %i[gc from], notes: NOTES, defaults: { format: :text, by: :line },
              exclusive: [%i[objects backend rate from], %i[from pid socket]]

      private

      def backend = @given.fetch(:backend, :auto)

      def rate = @given.fetch(:rate, MallocProfile::RATE)

      def seconds = @given.fetch(:seconds, 60.0)

      def objects? = @given[:objects]

      # The prefix in the names of the calls that the other process answers.
      def profiler = objects? ? :object_profile : :malloc_profile

      def check_options
        usage_error("--by is for --format=text") unless @given[:by] == :line || @given[:format] == :text
        usage_error("--budget is only for --objects") if @given.key?(:budget) && !objects?
        check_by(objects? ? Profile::OBJECT_GROUPINGS : Profile::GROUPINGS) unless from
      end

      def check_by(allowed)
        by = @given[:by]
        usage_error("--by: given #{by}, allowed for this profile: #{allowed.join(', ')}") unless allowed.include?(by)
      end

      def objects_options = { budget: @given.fetch(:budget, ObjectProfile::BUDGET) }

      def perform
        check_options
        usage_error("no process given; allowed: --pid N, --socket PATH, --from FILE, -- COMMAND") unless from || other?

        reserve_output { write(from ? read : asking { asked }) }
        FINE
      end

      # A profile that is already running is somebody else's: it continues, and only its change is reported. Which
      # memory has survived a major GC is known only for a profile that this command started.
      def asked
        running, jemalloc = other.call(:"#{profiler}_state").values_at("running", "jemalloc")
        return changed if running

        recorded(objects? ? objects_options : { rate: rate, backend: chosen(jemalloc) })
      end

      # The report names the backend.
      def chosen(jemalloc)
        return backend unless backend == :auto

        jemalloc ? :jemalloc : :imports
      end

      def changed
        earlier = other.call(:"#{profiler}_snapshot")
        say("process #{earlier.pid} is being profiled already: that profile goes on as it was started, " \
            "and this report is its change in #{format('%g', seconds)} seconds")
        wait
        other.call(:"#{profiler}_snapshot").growth_since(earlier)
      end

      # Waits for --seconds, or until it is interrupted.
      def wait
        sleep(seconds)
      rescue Interrupt
        say("stopped early")
      end

      # If this command is killed, the other process stops profiling by itself.
      def recorded(options)
        token = other.call(:"#{profiler}_start", seconds: seconds, **options)
        begin
          wait
        ensure
          profile = other.call(:"#{profiler}_stop", token: token, **@given.slice(:gc))
        end
        profile
      end

      def from = @given[:from]

      def read
        Profile.from_json(read_in_full(from, "--from"))
      rescue Invalid => e
        failure("--from #{from}: #{e.as}")
      end

      def write(profile)
        check_by(profile.groupings)
        deliver { |display| profile.formatted(@given[:format], by: @given[:by], **display.to_h) }
      end

      def start
        check_options
        usage_error("--format=pprof is binary: give --output FILE") if @given[:format] == :pprof && !output
        return hand_over(self.class.title, **order, **objects_options) if objects?

        environment = Launch::Environment.new(ENV)
        environment = served("jemalloc", PROFILER, profiled: true) if backend == :jemalloc
        hand_over(self.class.title, environment, backend: backend, rate: rate, **order)
      end

      def order = @given.slice(:objects, :format, :by, :seconds)
    end
  end
end
