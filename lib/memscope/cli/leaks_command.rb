# frozen_string_literal: true

Memscope::Loading.unit :Check

module Memscope
  module CLI
    # `memscope leaks -- COMMAND`: becomes a Ruby program that fails if one of its lines keeps too much memory that it
    # allocated after the warm-up or, with --objects, too many Ruby objects. `memscope leaks config.ru`: checks whether
    # an application keeps memory with each request to one path.
    class LeaksCommand < Command
      # How many bytes, and with --objects how many objects, a line may keep by default.
      THRESHOLDS = { nil => 1 << 20, true => 10_000 }.freeze
      ABSOLUTE = Limit.new(:itself.to_proc, ->(path) { path.start_with?("/") }, WORDS[:absolute_path]).freeze

      declare limits: { threshold: Limit.new(NUMBER, :positive?.to_proc, WORDS[:positive]),
                        path: ABSOLUTE, requests: Limit.of(Check::REQUESTS) },
              most: 1, program: %i[objects threshold warmup], process: %i[path requests],
              defaults: { warmup: 1.0, path: "/", requests: 1000 }

      private

      def start
        threshold = @given.fetch(:threshold, THRESHOLDS[@given[:objects]])
        # A sample for each 4 KiB, and every allocation of objects.
        hand_over("leaks", threshold: threshold, **@given.slice(:objects, :warmup), by: :line, backend: :imports,
                           rate: 4096, budget: 1, format: @given[:json] ? :json : :text)
      end

      def perform
        file, = @operands
        usage_error(:no_application, given: file || "nothing") unless file && File.file?(file)

        check = aside { follow(file) }
        deliver_readings([check])
        check.grows? ? 1 : FINE
      rescue Check::Failed, Unavailable => e
        failure(e.message)
      rescue Interrupt
        failure(:interrupted)
      end

      # Shows the progress if standard error is a terminal.
      def follow(file)
        Check.application(file, **@given.slice(:path, :requests)) do |made|
          @err.print("\r#{made} of #{@given[:requests]} requests") if @err.tty?
        end
      ensure
        @err.print("\r\e[K") if @err.tty?
      end

      # The application's output, such as the log of Rails in production, must not be mixed into the report: it goes
      # to standard error.
      def aside
        out = STDOUT # rubocop:disable Style/GlobalStdStream -- a logger has it, whatever $stdout is
        kept = out.dup
        out.reopen(STDERR) # rubocop:disable Style/GlobalStdStream
        yield
      ensure
        out.reopen(kept)
        kept.close
      end
    end
  end
end
