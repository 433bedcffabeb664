# frozen_string_literal: true

require_relative "../report/quantity"

module Memscope
  class Lint < Reading
    # The verdict on the inputs, whichever allocator serves malloc: the settings, and a problem for each setting that
    # the allocator refused. A subclass knows the rules of one allocator. It keeps the options that took effect, except
    # options that this process has a reason to change.
    #
    # @api private
    class Verdict
      # Up to this many arenas do no harm.
      FEW_ARENAS = 8
      # Problems that do no harm by themselves. The doctor's rules on free memory in arenas show whether the number of
      # arenas does harm.
      HARMLESS = %i[without_effect too_many_arenas].freeze
      # What the variables that HostEnvironment#raised names do.
      COLLECTOR = { pages: "Ruby keeps more pages without objects",
                    malloc: "malloc may grow further before Ruby collects garbage" }.freeze

      # @param inputs [Inputs]
      def initialize(inputs)
        @inputs = inputs
        @allocator = inputs.allocator
        @environment = inputs.environment
        @variables = Variables.new(inputs)
        @settings = @allocator.settings.values.map { |setting| shown(setting) }
        @values = @settings.to_h { |setting| [setting.name, setting.value] }
        @harms = []
        @pairs = kept.transform_values { |text| [text, "as given"] }
        judge
      end

      # @return [Hash{Symbol => Object}] the fields of a Lint, except its cost
      def body
        { allocator: @allocator.name, version: @allocator.version, environment: @environment, settings: @settings,
          problems: problems.partition { |problem| problem.severity == :warning }.flatten,
          recommendations: recommendations, recommended: recommended, tuning: tuning, reasons: reasons }
      end

      private

      def shown(setting) = Setting.capture({ **setting.to_h.except(:ignored), problem: setting.ignored })

      # Values by name of those options in the text to replace that took effect.
      def kept = {}

      # Fills @harms, and changes @pairs, which holds the value and reason of each option to set.
      def judge; end

      def judge_arenas(name)
        limit = @values[name]
        excessive = [limit, @environment.threads].compact.min > [FEW_ARENAS, 4 * @environment.parallel].max
        if excessive
          harm(name, :too_many_arenas,
               "#{@allocator.name} may use #{limit} arenas for #{crowd}; each fragments separately")
        end
        return if limit <= @environment.arenas || (@pairs.key?(name) && !excessive)

        pair(name, @environment.arenas,
             "up to #{limit} arenas each keep their own freed memory, and #{@environment.arenas} " \
             "suffice#{'s' if @environment.arenas == 1} for #{crowd}")
      end

      def crowd
        threads = @environment.threads
        "#{threads ? "#{threads} thread#{'s' unless threads == 1}" : 'its threads'} on #{@environment.processors}"
      end

      def harm(setting, id, text, replacement = nil)
        @harms << [id, HARMLESS.include?(id) ? :info : :warning, "#{setting}: #{text}", replacement]
      end

      def pair(name, value, reason) = @pairs[name] = [value.to_s, reason]

      def problems
        harms = @harms.map { |id, severity, text, own| problem(id, severity, text, own || replacement) }
        [*refused, *harms, *@variables.problems(replacement).map { |parts| problem(*parts) }, *collector]
      end

      # Settings of Ruby's garbage collector, which are no problem by themselves: the doctor's rules on pages without
      # objects and on garbage name them if they explain an amount.
      def collector
        COLLECTOR.flat_map do |kind, effect|
          @environment.raised(kind).map do |variable|
            problem(:raised_gc, :info, "#{variable} is above Ruby's default: #{effect}")
          end
        end
      end

      # A problem for each setting that the allocator itself did not accept.
      def refused
        @allocator.settings.values.select(&:ignored).map do |setting|
          problem(:invalid_value, :warning, "#{setting.name}, given #{setting.given.inspect}: #{setting.ignored}")
        end
      end

      def recommendations
        @recommendations ||= @pairs.map do |name, (value, reason)|
          Recommendation.capture({ name: name, text: assignment(name, value), now: @values[name], reason: reason })
        end
      end

      def recommended = nil

      def tuning = nil

      # What to paste instead of a wrong setting.
      def replacement = recommended

      def reasons
        { **@allocator.reasons.slice(:name, :settings, *@allocator.settings.keys),
          **(recommended ? {} : { recommended: nothing_recommended }) }
      end

      def nothing_recommended = "memscope has recommendations for jemalloc and glibc only"

      # Quoted for a shell, if the text needs quotes.
      def quoted(text) = text.match?(%r{[^\w:,.=/+-]}) ? "'#{text.gsub("'") { "'\\''" }}'" : text

      def problem(id, severity, text, replacement = nil)
        Problem.capture({ id: id, severity: severity, text: text, replacement: replacement })
      end
    end
    private_constant :Verdict
  end
end
