# frozen_string_literal: true

Memscope::Loading.unit :Check

module Memscope
  module CLI
    # `memscope leaks -- COMMAND`: becomes a Ruby program that fails if one of its lines keeps too much memory that it
    # allocated after the warm-up; with --objects, too many Ruby objects. `memscope leaks config.ru`: whether an
    # application keeps memory with each request to one path.
    class LeaksCommand < Command
      # How many bytes, and with --objects how many objects, a line may keep by default.
      THRESHOLDS = { nil => 1 << 20, true => 10_000 }.freeze
      NOTES = <<~TEXT
        When COMMAND ends, memscope collects garbage and prints, by line, the live
        memory that was allocated after the warm-up. The exit status is COMMAND's own.
        If that is 0, it becomes 1 if the estimate for a line exceeds the threshold by
        more than two standard errors, 74 if COMMAND ended during the warm-up.

        COMMAND should repeat the same work. The warm-up ends after --warmup seconds or,
        without --objects, when COMMAND calls Memscope::MallocProfile.next_generation.
        The report goes to standard error, or to FILE. Child processes are not judged.

        With --objects, a line fails if the number of Ruby objects that it keeps exceeds
        the threshold, and both halves of the time after the warm-up added some.

        The application of config.ru is loaded into this process, in production unless
        RAILS_ENV or RACK_ENV is set. Memory grows if objects or malloc's blocks have
        increased by at least one per request in each of the last five of ten rounds.

        exit status: 0 nothing grows; 1 memory grows; 74 a request failed, or Ctrl-C
        ended the check
      TEXT
      private_constant :THRESHOLDS, :NOTES

      declare "fail if a program's lines or requests to an application keep memory",
              "memscope leaks --threshold=200000 --warmup=2 -- bundle exec ruby test/leaks.rb",
              "memscope leaks --objects --warmup=2 -- bundle exec ruby test/leaks.rb",
              "memscope leaks config.ru --path=/orders",
              options: [["--objects", "judge Ruby objects instead of malloc memory"],
                        ["--threshold NUMBER", Limit.new(NUMBER, :positive?.to_proc, "a number above 0"),
                         "the most bytes that a line may keep", "(default: 1048576); with --objects, the most",
                         "objects (default: 10000)"],
                        ["--warmup SECONDS", SECONDS, "ignore the first SECONDS (default: 1)"],
                        ["--path PATH",
                         Limit.new(:itself.to_proc, ->(path) { path.start_with?("/") }, "a path that begins with /"),
                         "config.ru: the path to request"],
                        ["--requests N", Limit.of(Check::REQUESTS), "config.ru: how many requests"], *TEXT],
              operands: "[config.ru]", most: 1, program: %i[objects threshold warmup], process: %i[path requests],
              notes: NOTES, defaults: { warmup: 1.0, path: "/", requests: 1000 }

      private

      def start
        threshold = @given.fetch(:threshold, THRESHOLDS[@given[:objects]])
        # A sample for each 4 KiB; and every allocation of objects.
        hand_over("leaks", threshold: threshold, **@given.slice(:objects, :warmup), by: :line, backend: :imports,
                           rate: 4096, budget: 1, format: @given[:json] ? :json : :text)
      end

      def perform
        file, = @operands
        known = file && File.file?(file)
        usage_error("given #{file || 'nothing'}, allowed: a rackup file such as config.ru, -- COMMAND") unless known

        check = aside { follow(file) }
        deliver_readings([check])
        check.grows? ? 1 : FINE
      rescue Check::Failed, Unavailable => e
        failure(e.message)
      rescue Interrupt
        failure("interrupted")
      end

      # Shows the progress if standard error is a terminal.
      def follow(file)
        Check.application(file, **@given.slice(:path, :requests)) do |made|
          @err.print("\r#{made} of #{@given[:requests]} requests") if @err.tty?
        end
      ensure
        @err.print("\r\e[K") if @err.tty?
      end

      # What the application prints, such as the log of Rails in production, must not be mixed into the report: it goes
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
