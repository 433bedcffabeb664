# frozen_string_literal: true

require_relative "../exercise"

module Memscope
  module CLI
    # `memscope exercise`: whether an application keeps memory with each request to one path.
    class ExerciseCommand < Command
      NOTES = <<~TEXT
        The application of config.ru, or of another rackup file, is loaded into this
        process (use bundle exec for its gems); RAILS_ENV and RACK_ENV are production
        unless one of them is set. The requests are made in ten rounds. After each,
        garbage is collected, and what is in use is counted: objects, malloc's blocks.
        Memory grows if objects of a class, all objects, or malloc's blocks have
        increased by at least one per request (rounded) in each of the last five rounds.
        A few more requests then find the lines that allocate what grows.

        Any status but 200 to 299 and those of --allow-status ends the exercise: error
        pages are not measured.

        exit status: 0 nothing grows; 1 memory grows; 74 a request failed, or the
        exercise was interrupted
      TEXT
      number = ->(name, range, *text) { ["--#{name} N", OptionParser::DecimalInteger, Limit.of(range), *text] }
      HEADER = Limit.new(/\A[!#$%&'*+.^`|~\w-]+: ?[^\r\n]*\z/.method(:match?), "a name, a colon and a value").freeze
      FORMS = {
        process: { summary: "request one path many times, and tell whether memory grows",
                   example: "memscope exercise --path=/orders", notes: NOTES,
                   defaults: { requests: 1000, threads: 1 },
                   options: [["--path PATH", "the path to request (default: /)"],
                             number.call("requests", Exercise::REQUESTS, "how many requests"),
                             number.call("threads", Exercise::THREADS, "how many run concurrently"),
                             ["--header LINE", HEADER, "sent each time, such as", "\"Accept: text/html\"; repeatable"],
                             ["--allow-status N", OptionParser::DecimalInteger, Limit.of(300..499),
                              "a status to accept; repeatable"], *TEXT] }
      }.freeze
      # Options that can be given several times.
      LISTS = %i[header allow_status].freeze
      # The exit status for memory that grows.
      GROWS = 1
      private_constant :NOTES, :HEADER, :FORMS, :LISTS, :GROWS

      private

      def operands = "[config.ru]"

      def take(operands)
        super(operands, 1)
        @target = operands.fetch(0, "config.ru")
      end

      def give(name, value)
        collected = @given[name]
        super
        @given[name] = [*collected, value] if LISTS.include?(name)
      end

      def perform
        exercise = run_exercise
        deliver_readings([exercise])
        return GROWS if exercise.check&.grows?

        exercise.interrupted? ? INPUT_OUTPUT : FINE
      rescue Exercise::Failed => e
        failure(e.message)
      rescue Interrupt
        failure("interrupted before the first request")
      end

      def run_exercise
        aside { follow }
      rescue ArgumentError => e
        usage_error(e.message.delete_prefix("Memscope::Exercise.run: "))
      end

      # Shows the progress if standard error is a terminal.
      def follow
        return Exercise.run(@target, **options) unless @err.tty?

        Exercise.run(@target, **options) { |made, all| @err.print("\r#{made} of #{all} requests") }
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

      def options
        headers = @given.fetch(:header, []).to_h { |line| line.split(/: ?/, 2) }
        allowed = @given.fetch(:allow_status, [])
        { **@given.slice(:path, :requests, :threads), headers: headers, allow_status: allowed }
      end
    end
  end
end
