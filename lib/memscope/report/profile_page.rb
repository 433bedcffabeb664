# frozen_string_literal: true

require_relative "profile_footer"
require_relative "profile_lines"

module Memscope
  class Report
    # A malloc profile, or the difference of two: what holds most, and the native function that allocated it; then how
    # it was measured.
    class ProfilePage
      include Quantity

      NOUNS = { line: %w[line lines], method: %w[method methods], native: ["native function", "native functions"],
                library: %w[library libraries], stack: %w[stack stacks], generation: %w[generation generations],
                tag: %w[tag tags], thread: %w[thread threads] }.freeze
      # Of numbers that the page does not have.
      UNTOLD = %i[allocated_bytes allocated_objects freed_bytes freed_objects allocator_live_bytes inflated_bytes
                  patched_imports patched_objects].freeze
      private_constant :NOUNS, :UNTOLD

      # @param profile [Profile, Profile::Difference]
      # @param by [Symbol] of Profile::Sampled::GROUPINGS
      # @param limit [Integer] how many entries
      # @param unicode [Boolean] false: plain ASCII
      def initialize(profile, by: :line, limit: 20, unicode: Encoding.default_external == Encoding::UTF_8)
        @profile = profile
        @by = by
        @entries, @dead = profile.by(by).partition { |entry| !entry.live_bytes.zero? || entry.samples.positive? }
        @limit = limit
        @page = Page.new(unicode: unicode)
        @lines = ProfileLines.new(profile, by, unicode: unicode)
      end

      # @return [String]
      def to_s
        parts = [[title], [summary], table, reasons, ProfileFooter.new(@profile, @page).lines].reject(&:empty?)
        @page.encoded(parts.map { |lines| "#{lines.join("\n")}\n" }.join("\n"))
      end

      # @return [String] the whole in one sentence
      def summary_text = @profile.difference? ? change : state

      private

      def title
        @page.joined(["memscope #{@profile.memscope}", "ruby #{@profile.ruby}", "malloc profile",
                      "pid #{@profile.pid}"])
      end

      def summary = @page.wrapped(summary_text)

      def state
        return "Nothing that was sampled lives." if @profile.samples.zero?

        age = (@profile.at - @profile.started_at).round
        "#{size(@profile.live_bytes)} (give or take #{size(@profile.error_bytes)}) of what was allocated in the last " \
          "#{duration(age)} still lives, by #{counted(@profile.samples, 'samples')}."
      end

      def duration(seconds)
        return counted(seconds, "seconds") if seconds < 120

        minutes = seconds / 60
        minutes < 120 ? counted(minutes, "minutes") : counted(minutes / 60, "hours")
      end

      def change
        bytes = @profile.live_bytes
        return "What lives has not changed in #{format('%.1f', @profile.seconds)} seconds." if @profile.stacks.empty?

        verb = bytes.negative? ? "shrank" : "grew"
        "What lives #{verb} by #{size(bytes.abs)} (give or take #{size(@profile.error_bytes)}), from " \
          "#{size(@profile.earlier_live_bytes)} to #{size(@profile.later_live_bytes)}, in " \
          "#{format('%.1f', @profile.seconds)} seconds."
      end

      def table
        return @profile.difference? ? ["  nothing changed"] : dead if @entries.empty?

        [@lines.heading, *shown.flat_map { |entry| @lines.of(entry) }, *others, *dead,
         *(@page.wrapped(@lines.legend) if @lines.legend)]
      end

      # Of a difference both ends: what grew most, and what shrank most.
      def shown
        return @entries.first(@limit) if !@profile.difference? || @entries.size <= @limit

        shrunk = @entries.last(@limit / 4).select { |entry| entry.live_bytes.negative? }
        @entries.first(@limit - shrunk.size) + shrunk
      end

      def others
        hidden = @entries - shown
        return [] if hidden.empty?

        error = Integer.sqrt(hidden.sum { |entry| entry.error_bytes**2 })
        [@lines.row(hidden.sum(&:live_bytes), error, hidden.sum(&:samples), share_of(hidden),
                    "#{count(hidden.size)} other #{NOUNS.fetch(@by)[hidden.one? ? 0 : 1]}")]
      end

      # What was allocated there is freed again; in a difference, nothing changed there that lives.
      def dead
        return [] if @dead.empty? || @profile.difference?

        [@lines.note("#{count(@dead.size)} #{NOUNS.fetch(@by)[@dead.one? ? 0 : 1]} with nothing live")]
      end

      def share_of(hidden)
        shares = hidden.filter_map(&:share)
        shares.sum unless shares.empty?
      end

      def reasons
        @profile.reasons.except(*UNTOLD).map { |id, why| @page.wrapped("#{id}: #{why}") }
      end
    end
  end
end
