# frozen_string_literal: true

module Memscope
  class Report
    # The lines of a malloc profile's table: its numbers, the place, and below that what allocated there and how old it
    # is.
    class ProfileLines
      include Quantity

      # MiB, ±, samples, share.
      WIDTHS = [10, 8, 10, 9].freeze
      BARS = { true => %w[▁ ▂ ▃ ▄ ▅ ▆ ▇ █], false => %w[_ . - = + o O @] }.freeze
      # How many generations a bar has; older ones are its first.
      GENERATIONS = 12
      private_constant :WIDTHS, :BARS, :GENERATIONS

      # @param profile [Profile, Profile::Difference]
      # @param by [Symbol]
      # @param unicode [Boolean]
      def initialize(profile, by, unicode:)
        @profile = profile
        @by = by
        @unicode = unicode
        @signed = profile.difference?
        known = profile.stacks.map(&:generation).minmax
        @aged = by != :generation && known.uniq.size > 1 && !@signed
        @generations = ([known.first, profile.generation - GENERATIONS + 1].max..profile.generation) if @aged
      end

      # @return [String]
      def heading = line(["MiB", @unicode ? "±" : "+-", "samples", @signed ? "growth" : "share"], "")

      # @return [String, nil] what the bars say; nil where there are none
      def legend
        return unless @aged

        first = @generations.first
        "Bars: live bytes by generation, from #{first}#{' and older' if first.positive?} " \
          "to #{@generations.last}, the current one."
      end

      # @param entry [Profile::Entry]
      # @return [Array<String>]
      def of(entry)
        first, *more = place(entry)
        more += [native(entry.native)] if entry.native && @by != :native
        more << age(entry) if @aged
        [row(entry.live_bytes, entry.error_bytes, entry.samples, entry.share, first),
         *more.compact.map { |text| below(text) }]
      end

      # @return [String]
      def row(bytes, error, samples, share, text)
        numbers = [mebibytes(bytes), mebibytes(error), count(samples)]
        numbers = [signed_text(bytes, numbers[0]), numbers[1], signed(samples)] if @signed
        line([*numbers, share ? format("%.1f %%", 100 * share) : ""], text)
      end

      # @param text [String] that has no numbers
      # @return [String]
      def note(text) = line([""] * WIDTHS.size, text)

      private

      def signed_text(bytes, text) = bytes.positive? ? "+#{text}" : text

      def line(numbers, text)
        "#{numbers.zip(WIDTHS).map { |number, width| number.rjust(width) }.join}  #{text}".rstrip
      end

      def below(text) = "#{' ' * (WIDTHS.sum + 4)}#{ending(text, room - 2)}"

      def room = Page::WIDTH - WIDTHS.sum - 2

      # The function says more than the object that it is in.
      def native(text)
        whole = "by #{text}"
        whole.length <= room - 2 ? whole : whole.sub(/ \([^()]+\)\z/, "")
      end

      # The place, and its method below where both do not fit.
      def place(entry)
        return [ending(entry.name, room)] unless entry.lineno

        whole = "#{entry.path}:#{entry.lineno} in #{entry.name}"
        return [whole] if whole.length <= room

        [ending("#{entry.path}:#{entry.lineno}", room), "in #{entry.name}"]
      end

      # The end of what is too long says most; a path is cut between directories where that leaves enough of it.
      def ending(text, width)
        return text if text.length <= width

        mark = @unicode ? "…" : "..."
        rest = text[(mark.length - width)..]
        "#{mark}#{rest[%r{\A.{0,#{width / 2}}?(/.*)}, 1] || rest}"
      end

      # A bar for each generation, and how much of it is older than the current one.
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
