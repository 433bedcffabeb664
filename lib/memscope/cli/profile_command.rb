# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope profile`: which lines allocated the live malloc memory of a process that listens. `memscope profile --
    # COMMAND`: profiles a Ruby program from its first line until it ends. With --objects, which lines allocated live
    # Ruby objects.
    class ProfileCommand < Command
      GROUPINGS = (Profile::GROUPINGS | Profile::OBJECT_GROUPINGS).freeze
      BUDGETS = Limit.new(FRACTION, ObjectProfile.method(:budget?), WORDS[:share]).freeze
      RATES = Limit.new(NUMBER, MallocProfile.method(:rate?), WORDS[:power_of_two]).freeze
      # Enables jemalloc's profiler, which counts freed memory too.
      PROFILER = "#{MallocProfile::CONF},#{MallocProfile::ACCUMULATED}".freeze

      declare limits: { budget: BUDGETS, backend: Limit.one_of(MallocProfile::BACKENDS), rate: RATES,
                        format: Limit.one_of(Profile::FORMATS.keys), by: Limit.one_of(GROUPINGS) },
              process: %i[gc from],
              defaults: { format: :text, by: :line, backend: :auto, rate: MallocProfile::RATE,
                          budget: ObjectProfile::BUDGET },
              exclusive: [%i[objects backend rate from], %i[from pid socket]]

      private

      def seconds = @given.fetch(:seconds, 60.0)

      def objects? = @given[:objects]

      # The prefix in the names of the calls that the other process answers.
      def profiler = objects? ? :object_profile : :malloc_profile

      def check_options
        usage_error(:by_not_text) unless @given[:by] == :line || @given[:format] == :text
        usage_error(:budget_for_malloc) unless objects? || @given[:budget] == ObjectProfile::BUDGET
        check_by(objects? ? Profile::OBJECT_GROUPINGS : Profile::GROUPINGS) unless @given[:from]
      end

      def check_by(allowed)
        by = @given[:by]
        usage_error(:by_not_allowed, by: by, allowed: allowed.join(", ")) unless allowed.include?(by)
      end

      def perform
        check_options
        usage_error(:nothing_to_profile) unless @given[:from] || other?

        reserve_output { write(saved(Profile, :from) || asking { asked }) }
        FINE
      end

      # A profile that is already running is somebody else's: it continues, and only its change is reported. Which
      # memory has survived a major GC is known only for a profile that this command started. If this command is killed,
      # the other process stops that profile by itself.
      def asked
        running, jemalloc = other.call(:"#{profiler}_state").values_at("running", "jemalloc")
        return changed if running

        backend = @given[:backend]
        backend = jemalloc ? :jemalloc : :imports if backend == :auto
        options = objects? ? @given.slice(:budget) : { rate: @given[:rate], backend: backend }
        token = other.call(:"#{profiler}_start", seconds: seconds, **options)
        wait
        other.call(:"#{profiler}_stop", token: token, **@given.slice(:gc))
      end

      def changed
        earlier = other.call(:"#{profiler}_snapshot")
        say(:profiled_already, pid: earlier.pid, seconds: format("%g", seconds))
        wait
        other.call(:"#{profiler}_snapshot").growth_since(earlier)
      end

      # Waits for --seconds, or until it is interrupted.
      def wait
        sleep(seconds)
      rescue Interrupt
        say(:stopped_early)
      end

      def write(profile)
        check_by(profile.groupings)
        deliver { |display| profile.formatted(@given[:format], by: @given[:by], **display.to_h) }
      end

      def start
        check_options
        usage_error(:pprof_binary) if @given[:format] == :pprof && !output
        environment = served("jemalloc", PROFILER, profiled: true) if @given[:backend] == :jemalloc
        hand_over("profile", *environment, **@given.slice(:objects, :format, :by, :seconds, :backend, :rate, :budget))
      end
    end
  end
end
