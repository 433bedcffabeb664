# frozen_string_literal: true

require_relative "../../value/quantity"
require_relative "variables"

module Memscope
  class Lint < Reading
    # Judges the settings of the allocator that serves malloc: what it did not accept, what does harm, and what suits
    # this process better. A subclass has the rules of one allocator. The recommendation keeps the options that took
    # effect, except options that this process has a reason to change.
    #
    # @api private
    class SettingsCheck
      # Up to this many arenas do no harm.
      FEW_ARENAS = 8
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

      # Texts by name of the options to keep.
      def kept = {}

      # Fills @harms, and changes @pairs, which holds the value and reason of each option to set.
      def judge; end

      # Whether a text set the option to its value.
      def taken?(setting) = !setting.given.nil? && setting.ignored.nil? && setting.source != "default"

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

      def harm(setting, id, text, replacement = nil) = @harms << [id, "#{setting}: #{text}", replacement]

      def pair(name, value, reason) = @pairs[name] = [value.to_s, reason]

      # The doctor's rules on free memory in arenas show whether the number of arenas does harm.
      def problems
        harms = @harms.map do |id, text, own|
          problem(id, id == :too_many_arenas ? :info : :warning, text, own || recommended)
        end
        [*refused, *harms, *@variables.problems.map { |parts| problem(*parts) }, *collector]
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

      # A problem for each text that the allocator did not accept.
      def refused
        @allocator.settings.values.select(&:ignored).map { |setting| refusal(setting, setting.ignored) }
      end

      def refusal(setting, reason)
        place = source_of(setting)
        text = "#{"#{place}: " if place}#{"#{setting.name}, given " unless setting.name == setting.given}" \
               "#{Field.excerpt(setting.given)}: #{reason}"
        problem(:invalid_value, :warning, text, recommended || ("unset #{place}" if @variables[place]))
      end

      # The environment variable, or jemalloc's other source of options, whose text names the setting.
      def source_of(_setting) = nil

      def recommendations
        @recommendations ||= @pairs.map do |name, (value, reason)|
          Recommendation.capture({ name: name, text: assignment(name, value), now: @values[name], reason: reason })
        end
      end

      def recommended = nil

      def tuning = nil

      def reasons
        { **@allocator.reasons.slice(:name, :settings, *@allocator.settings.keys),
          **(recommended ? {} : { recommended: nothing_recommended }) }
      end

      def nothing_recommended
        return "memscope has recommendations for jemalloc and glibc only" if instance_of?(SettingsCheck)
        return "#{@allocator.name} ignores the environment of a set-user-ID program" if @inputs.secure?

        ["#{@allocator.name}'s own defaults suit this process",
         *(", apart from what Memscope.tune sets" if tuning)].join
      end

      def problem(id, severity, text, replacement = nil)
        Problem.capture({ id: id, severity: severity, text: text, replacement: replacement })
      end
    end
    private_constant :SettingsCheck
  end
end
