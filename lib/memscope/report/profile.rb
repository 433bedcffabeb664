# frozen_string_literal: true

require_relative "page"

module Memscope
  module Report
    # A malloc profile, or the difference of two: the places that hold most, each with the native function that
    # allocated most there and the age of the memory; then how it was measured.
    class ProfilePage < ReadingPage
      NOUNS = { line: %w[line lines], method: %w[method methods], native: ["native function", "native functions"],
                library: %w[library libraries], stack: %w[stack stacks], generation: %w[generation generations],
                tag: %w[tag tags], thread: %w[thread threads] }.freeze
      BACKENDS = { jemalloc: "jemalloc's profiler", imports: "GOT hooks (imports)" }.freeze
      # Numbers that the page does not show; nor does it print their reasons.
      UNUSED = %i[allocated_bytes allocated_objects freed_bytes freed_objects allocator_live_bytes inflated_bytes
                  patched_imports patched_objects].freeze
      # MiB, ±, samples, share.
      WIDTHS = [10, 8, 10, 9].freeze
      # The fewest columns of a place.
      NARROW = 24
      BARS = { true => %w[▁ ▂ ▃ ▄ ▅ ▆ ▇ █], false => %w[_ . - = + o O @] }.freeze
      # How many generations a bar has; older ones are added to its first.
      GENERATIONS = 12
      LATE = "%s came too late to be noticed; each of these blocks counted as live until its address was sampled again."
      private_constant :LATE, :NOUNS, :BACKENDS, :UNUSED, :WIDTHS, :NARROW, :BARS, :GENERATIONS

      # @param profile [Profile, Profile::Difference]
      # @param display [Hash{Symbol => Object}] as ReadingPage#initialize
      # @param by [Symbol] one of Profile::Sampled::GROUPINGS
      # @param limit [Integer] how many entries
      def initialize(profile, by: :line, limit: 20, **display)
        super(profile, **display)
        @by = by
        @judged = profile.unjudged_generation unless profile.difference?
        @entries, @dead = by_survival(profile.by(by)).partition do |entry|
          !entry.live_bytes.zero? || entry.samples.positive?
        end
        @limit = [limit, @entries.size].min
        @unicode = display.fetch(:unicode, true)
        @signed = profile.difference?
        @generations = generations unless by == :generation || @signed || @judged
      end

      # @return [String] the profile's total in one sentence
      def summary = @signed ? change : state

      # @return [Array<String>] paragraphs: how the profile was measured, how much of malloc it covers, and what it cost
      def provenance = @signed ? [rate] : [[rate, coverage].compact.join(" "), [*cost, *flaws].join(" ")]

      private

      # The generations of the bars; nil if all memory is of one.
      def generations
        known = @reading.stacks.map(&:generation).minmax
        ([known.first, @reading.generation - GENERATIONS + 1].max..@reading.generation) if known.uniq.size > 1
      end

      def subject = ["malloc profile", "pid #{@reading.pid}"]

      def sections = [[@page.wrapped(summary)], table]

      def reasons = explained(@reading.reasons.except(*UNUSED))

      def footer = provenance.map { |text| @page.wrapped(text) }

      def state
        return "No sampled allocation is still live." if @reading.samples.zero?

        age = (@reading.at - @reading.started_at).round
        "#{size(@reading.live_bytes)} (#{error}) allocated in the last #{duration(age)} is " \
          "still live, estimated from #{counted(@reading.samples, 'samples')}.#{survival}"
      end

      # Sorts by the memory that survived a full GC, which is certain to be held: the rest may be garbage.
      def by_survival(entries)
        @judged ? entries.sort_by.with_index { |entry, index| [-@reading.survived(entry.generations), index] } : entries
      end

      def survival
        return unless @judged

        survived = @reading.survived_bytes
        return " No full GC has run since then, so it may be garbage. With --gc, one runs first." if survived.zero?

        " #{size(survived)} of it survived a full GC; #{size(@reading.unjudged_bytes)} was allocated since, and may " \
          "be garbage."
      end

      def error = "#{@page.plus_minus}#{size(@reading.error_bytes)}"

      def duration(seconds)
        return counted(seconds, "seconds") if seconds < 120

        minutes = seconds / 60
        minutes < 120 ? counted(minutes, "minutes") : counted(minutes / 60, "hours")
      end

      def change
        bytes = @reading.live_bytes
        seconds = "#{format('%.1f', @reading.seconds)} seconds"
        return "Live memory has not changed in #{seconds}." if @reading.stacks.empty?

        "Live memory #{bytes.negative? ? 'shrank' : 'grew'} by #{size(bytes.abs)} (#{error}), " \
          "from #{size(@reading.earlier_live_bytes)} to #{size(@reading.later_live_bytes)}, in #{seconds}."
      end

      def table
        return @signed ? ["  nothing changed"] : dead if @entries.empty?

        [@page.highlighted(heading), *shown.flat_map { |entry| entry_lines(entry) }, *others, *dead,
         *(@page.wrapped(legend) if legend)]
      end

      # The largest entries; for a difference, the entries that grew most, and those that shrank most.
      def shown
        return @entries.first(@limit) if !@signed || @entries.size <= @limit

        shrunk = @entries.last(@limit / 4).select { |entry| entry.live_bytes.negative? }
        @entries.first(@limit - shrunk.size) + shrunk
      end

      def others
        hidden = @entries - shown
        return [] if hidden.empty?

        error = Integer.sqrt(hidden.sum { |entry| entry.error_bytes**2 })
        shares = hidden.filter_map(&:share)
        [row(hidden.sum(&:live_bytes), error, hidden.sum(&:samples), (shares.sum if shares.any?),
             "#{count(hidden.size)} other #{noun(hidden)}")]
      end

      # How many places have no live memory left. A difference shows none: there @dead are the places whose live memory
      # has not changed.
      def dead
        return [] if @dead.empty? || @signed

        [line([""] * WIDTHS.size, "#{count(@dead.size)} #{noun(@dead)} with no live bytes")]
      end

      def noun(entries) = NOUNS.fetch(@by)[entries.one? ? 0 : 1]

      def rate
        "On average, #{BACKENDS.fetch(@reading.backend)} took one sample per #{size(@reading.rate_bytes)} allocated. " \
          "#{@page.plus_minus} is one standard error; the true value lies within three of them 99.7 % of the time."
      end

      def coverage
        share = @reading.coverage
        "The samples account for #{format('%.0f', 100 * share)} % of the growth in the allocator's own count." if share
      end

      def cost
        overhead = @reading.overhead
        ["#{counted(overhead.samples_taken, 'samples')} took #{milliseconds(overhead.nanoseconds / 1000)} and " \
         "#{size(overhead.table_bytes)} for tables; profiling #{@reading.running? ? 'is running' : 'has stopped'}."]
      end

      # The samples and frees that were missed, and what sampling adds to the allocator's own numbers.
      def flaws
        overhead = @reading.overhead
        [("#{counted(overhead.dropped_samples, 'samples')} had no room and are missing." if
           overhead.dropped_samples.positive?),
         (LATE % counted(overhead.lost_frees, "frees") if overhead.lost_frees.positive?),
         ("Sampling itself adds #{size(overhead.inflated_bytes)} to jemalloc's active bytes." if
           overhead.inflated_bytes&.positive?)].compact
      end

      def heading = line(["MiB", @page.plus_minus, "samples", @signed ? "growth" : "share"], "")

      # The meaning of the bars; nil if there are none.
      def legend
        return unless @generations

        first = @generations.first
        "Bars: live bytes by generation, from #{first}#{' and older' if first.positive?} " \
          "to #{@generations.last}, the current one."
      end

      def entry_lines(entry)
        first, *rest = place(entry)
        more = [*rest, *(native(entry.native) if entry.native && @by != :native), *ages(entry)]
        [row(entry.live_bytes, entry.error_bytes, entry.samples, entry.share, first),
         *more.map { |text| "#{' ' * (WIDTHS.sum + 4)}#{ending(text, room - 2)}" }]
      end

      def ages(entry)
        [(age(entry) if @generations),
         ("#{size(@reading.survived(entry.generations))} survived a full GC" if @judged&.positive?)].compact
      end

      def row(bytes, error, samples, share, text)
        live, number = @signed ? [signed_mebibytes(bytes), signed(samples)] : [mebibytes(bytes), count(samples)]
        line([live, mebibytes(error), number, share ? format("%.1f %%", 100 * share) : ""], text)
      end

      def line(numbers, text)
        "#{numbers.zip(WIDTHS).map { |number, width| number.rjust(width) }.join}  #{text}".rstrip
      end

      def room = [@page.width - WIDTHS.sum - 2, NARROW].max

      # The function's name and, if there is room, the object's, which matters less.
      def native(text)
        whole = "by #{text}"
        whole.length <= room - 2 ? whole : whole.sub(/ \([^()]+\)\z/, "")
      end

      # The place and its method, on two lines if one line is too short for them.
      def place(entry)
        return [ending(entry.name, room)] unless entry.lineno

        whole = "#{entry.path}:#{entry.lineno} in #{entry.name}"
        return [whole] if whole.length <= room

        [ending("#{entry.path}:#{entry.lineno}", room), "in #{entry.name}"]
      end

      # The end of a long text, since that says most; a path is cut between directories if that leaves enough of it.
      def ending(text, width)
        return text if text.length <= width

        mark = @unicode ? "…" : "..."
        rest = text[(mark.length - width)..]
        "#{mark}#{rest[%r{\A.{0,#{width / 2}}?(/.*)}, 1] || rest}"
      end

      # A bar for each generation, and the share of live bytes from before the current generation.
      def age(entry)
        bytes = entry.generations
        whole = bytes.values.sum
        return unless whole.positive?

        old = bytes.sum { |generation, live| generation < @generations.last ? live : 0 }
        "#{bar(bytes)} #{format('%.0f', 100.0 * old / whole)} % in old generations"
      end

      def bar(bytes)
        first = @generations.first
        heights = @generations.map { |generation| bytes.sum { |one, live| [one, first].max == generation ? live : 0 } }
        most = heights.max
        bars = BARS.fetch(@unicode)
        heights.map { |height| height.zero? ? " " : bars[(height.fdiv(most) * (bars.size - 1)).round] }.join
      end
    end
  end
end
