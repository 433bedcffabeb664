# frozen_string_literal: true

require_relative "../reading"
require_relative "variables"

module Memscope
  class Lint < Reading
    # What follows from the evidence for whichever allocator serves malloc. For one of which memscope knows no rules:
    # its settings, and what it says of them.
    class Verdict
      # @param evidence [Evidence]
      def initialize(evidence)
        @evidence = evidence
        @allocator = evidence.allocator
        @surroundings = evidence.surroundings
        @variables = Variables.new(evidence)
      end

      # @return [Hash{Symbol => Object}] of a Lint, without its cost
      def body
        { allocator: @allocator.name, version: @allocator.version, surroundings: @surroundings, settings: settings,
          problems: problems.partition { |problem| problem.severity == :warning }.flatten,
          recommendations: recommendations, recommended: recommended, reasons: reasons }
      end

      private

      def settings = @allocator.settings.values.map { |setting| shown(setting) }

      def shown(setting)
        Setting.capture({ name: setting.name, value: setting.value, source: setting.source, given: setting.given,
                          problem: setting.ignored })
      end

      def problems = [*refused, *@variables.problems(recommended)]

      # What the allocator itself did not take.
      def refused
        @allocator.settings.values.select(&:ignored).map do |setting|
          problem(:invalid_value, :warning, "#{setting.name}, given #{setting.given.inspect}: #{setting.ignored}")
        end
      end

      def recommendations = []

      def recommended = nil

      def reasons
        { **@allocator.reasons.slice(:name, :settings, *@allocator.settings.keys),
          **(recommended ? {} : { recommended: nothing_recommended }) }
      end

      def nothing_recommended = "memscope knows what suits a process under jemalloc and glibc only"

      # For a shell, where it needs that.
      def quoted(text) = text.match?(%r{[^\w:,.=/+-]}) ? "'#{text}'" : text

      def problem(id, severity, text, replacement = nil)
        Problem.capture({ id: id, severity: severity, text: text, replacement: replacement })
      end
    end
    private_constant :Verdict
  end
end
