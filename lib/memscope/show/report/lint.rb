# frozen_string_literal: true

module Memscope
  module Report
    # The allocator's settings that something has set, the problems, and the recommended settings.
    class LintPage < ReadingPage
      NAME_WIDTH = 26
      private_constant :NAME_WIDTH

      private

      def subject
        version = @reading.version && (@reading.version[/\A\d+(\.\d+)+/] || @reading.version)
        ["settings of #{[@reading.allocator, version].compact.join(' ')}", "pid #{@reading.pid}"]
      end

      def sections = [settings, problems, recommendations]

      def footer = nil

      # The settings that something has set, and those with a recommendation.
      def settings
        shown, others = @reading.settings.partition { |setting| shown?(setting) }
        [*(fitting("  #{'Setting'.ljust(NAME_WIDTH)}#{'value'.rjust(14)}  from") if shown.any?),
         *shown.map { |setting| setting_line(setting) },
         *("  #{'All ' if shown.empty?}#{others.size}#{' other' if shown.any?} settings have their default values." \
           if others.any?)]
      end

      def shown?(setting)
        setting.source != "default" || setting.given || @reading.recommendations.map(&:name).include?(setting.name)
      end

      def setting_line(setting)
        given = ", given #{setting.given.inspect}" if setting.ignored && setting.given
        fitting("  #{setting.name.ljust(NAME_WIDTH)}#{value(setting.value).rjust(14)}  #{setting.source}#{given}")
      end

      def fitting(line) = line.length > @page.width ? "#{line[0, @page.width - 3]}..." : line

      def value(value)
        return value.nil? ? @page.unknown : value.to_s unless value.is_a?(Integer) && value.positive?

        count(value)
      end

      def problems
        return ["  No problems found in the settings."] if @reading.problems.empty? && @reading.allocator != :unknown

        @reading.problems.flat_map do |problem|
          text = @page.wrapped("#{problem.severity}: #{problem.text}")
          [text.sub(/\w+/) { |severity| @page.highlighted(severity, problem.severity) }, *paste(problem.replacement)]
        end
      end

      # Not wrapped: people paste it.
      def paste(text)
        return if text.nil?

        text == @reading.recommended ? "    paste the recommended line below" : "    paste  #{text}"
      end

      def recommendations
        parts = @reading.recommendations.map { |part| @page.wrapped("#{part.text}  #{part.reason}", indent: "    ") }
        { "  Recommended for this process" => @reading.recommended,
          "  Recommended at run time, in each process: it then returns pages while idle" => @reading.tuning }
          .compact.flat_map do |title, line|
            [title, "", "    #{line}", *(["", *parts] if line == @reading.recommended)]
          end
      end

      def reasons
        hidden = @reading.settings.reject { |setting| shown?(setting) }.map { |setting| setting.name.to_sym }
        unavailable(@reading.reasons.except(*hidden))
      end
    end
  end
end
