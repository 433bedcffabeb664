# frozen_string_literal: true

module Memscope
  module Report
    # The allocator's settings that something has set, the problems, and the recommended settings.
    class LintPage < ReadingPage
      private

      def subject
        version = @reading.version&.slice(/\A\d+(\.\d+)+|.*/)
        ["settings of #{[@reading.allocator, version].compact.join(' ')}", "pid #{@reading.pid}"]
      end

      def sections = [settings, problems, recommendations]

      def footer = nil

      # The settings that something has set, and those with a recommendation.
      def settings
        shown, others = @reading.settings.partition { |setting| shown?(setting) }
        table = @page.listing(%w[setting value], shown.map { |one| [one.name, value(one)] }) if shown.any?
        rest = "  #{'All ' if shown.empty?}#{others.size}#{' other' if shown.any?} settings have their default values."
        [*table, *(rest if others.any?)]
      end

      def shown?(setting)
        setting.source != "default" || setting.given || @reading.recommendations.map(&:name).include?(setting.name)
      end

      def value(setting)
        given = ", given #{setting.given.inspect}" if setting.ignored && setting.given
        value = setting.value
        value = counted_cell(value) if value.nil? || (value.is_a?(Integer) && value.positive?)
        "#{value} (#{setting.source}#{given})"
      end

      def problems
        return ["  #{text(:no_problems_in_settings)}"] if @reading.problems.empty? && @reading.allocator != :unknown

        @reading.problems.flat_map do |problem|
          lines = @page.wrapped("#{problem.severity}: #{problem.text}")
          replacement = problem.replacement # not wrapped: people paste it
          paste = replacement == @reading.recommended ? text(:paste_below) : "paste  #{replacement}"
          [lines.sub(/\w+/) { |severity| @page.highlighted(severity, problem.severity) },
           *("    #{paste}" if replacement)]
        end
      end

      def recommendations
        parts = @reading.recommendations.map { |part| @page.wrapped("#{part.text}  #{part.reason}", indent: "    ") }
        { recommended: @reading.recommended, recommended_at_run_time: @reading.tuning }.compact.flat_map do |name, line|
          ["  #{text(name)}", "", "    #{line}", *(["", *parts] if line == @reading.recommended)]
        end
      end

      def reasons
        hidden = @reading.settings.reject { |setting| shown?(setting) }.map { |setting| setting.name.to_sym }
        unavailable(@reading.reasons.except(*hidden))
      end
    end
  end
end
