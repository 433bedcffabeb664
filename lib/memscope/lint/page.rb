# frozen_string_literal: true

require_relative "../reading"
require_relative "../report/page"
require_relative "../report/quantity"

module Memscope
  class Lint < Reading
    # A Lint as text for people.
    class Page
      NAME_WIDTH = 26
      private_constant :NAME_WIDTH

      # @param lint [Lint]
      # @param unicode [Boolean] false: plain ASCII
      def initialize(lint, unicode:)
        @lint = lint
        @page = Report::Page.new(unicode: unicode)
      end

      # @return [String]
      def to_s
        sections = [[title], settings, problems, recommendations, reasons].reject(&:empty?)
        @page.encoded(sections.map { |lines| "#{lines.join("\n")}\n" }.join("\n"))
      end

      private

      def title
        version = @lint.version && (@lint.version[/\A\d+(\.\d+)+/] || @lint.version)
        @page.joined(["memscope #{@lint.memscope}", "ruby #{@lint.ruby}",
                      "settings of #{[@lint.allocator, version].compact.join(' ')}", "pid #{@lint.pid}"])
      end

      # Those that something has set, and those that a recommendation is about.
      def settings
        shown, others = @lint.settings.partition { |setting| shown?(setting) }
        [*(setting_heading if shown.any?), *shown.map { |setting| setting_line(setting) },
         *("  #{shown.empty? ? 'All' : 'The other'} #{others.length} settings stand at their defaults." if others.any?)]
      end

      def shown?(setting)
        setting.source != "default" || setting.given || @lint.recommendations.map(&:name).include?(setting.name)
      end

      def setting_heading = "  #{'Setting'.ljust(NAME_WIDTH)}#{'value'.rjust(14)}  from"

      def setting_line(setting)
        given = ", given #{setting.given.inspect}" if setting.problem && setting.given
        line = "  #{setting.name.ljust(NAME_WIDTH)}#{value(setting.value).rjust(14)}  #{setting.source}#{given}"
        line.length > Report::Page::WIDTH ? "#{line[0, Report::Page::WIDTH - 3]}..." : line
      end

      def value(value)
        case value
        when nil then @page.unknown
        when Integer then value.negative? ? value.to_s : Report::Quantity.count(value)
        else value.to_s
        end
      end

      def problems
        return ["  Nothing is wrong with what is set."] if @lint.problems.empty? && @lint.allocator != :unknown

        @lint.problems.flat_map do |problem|
          [@page.wrapped("#{problem.severity}: #{problem.text}"), *(paste(problem.replacement) if problem.replacement)]
        end
      end

      # Never broken: it is to be pasted.
      def paste(text) = text == @lint.recommended ? "    paste what is recommended below" : "    paste  #{text}"

      def recommendations
        return [] unless @lint.recommended

        parts = @lint.recommendations.map do |part|
          @page.wrapped("#{part.text}  #{part.reason}#{now(part)}", indent: "    ")
        end
        ["  Recommended for this process", "", "    #{@lint.recommended}", "", *parts]
      end

      def now(part)
        " (now #{value(part.now)})" unless part.now.nil? || part.text.end_with?(":#{part.now}", "=#{part.now}")
      end

      def reasons
        hidden = @lint.settings.reject { |setting| shown?(setting) }.map { |setting| setting.name.to_sym }
        given = @lint.reasons.except(*hidden)
        return [] if given.empty?

        ["  not known, or coarse:", *given.map { |id, why| @page.wrapped("#{id}: #{why}", indent: "    ") }]
      end
    end
    private_constant :Page
  end
end
