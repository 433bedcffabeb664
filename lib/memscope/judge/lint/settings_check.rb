# frozen_string_literal: true

module Memscope
  class Lint < Reading
    # Judges the settings of the allocator that serves malloc: those that it refused, those that do harm, and better
    # ones for this process; and the environment variables that an allocator reads, or whose names resemble the name of
    # such a variable. A subclass has the rules of one allocator. The recommendation keeps the options that took effect,
    # except options that this process has a reason to change.
    # @api private
    class SettingsCheck
      # Up to this many arenas do no harm.
      FEW_ARENAS = 8
      # glibc's variables, by the tunable of the same meaning (elf/dl-tunables.list).
      GLIBC = { "arena_max" => "MALLOC_ARENA_MAX", "arena_test" => "MALLOC_ARENA_TEST",
                "mmap_threshold" => "MALLOC_MMAP_THRESHOLD_", "trim_threshold" => "MALLOC_TRIM_THRESHOLD_",
                "mmap_max" => "MALLOC_MMAP_MAX_", "top_pad" => "MALLOC_TOP_PAD_",
                "perturb" => "MALLOC_PERTURB_", "check" => "MALLOC_CHECK_" }.freeze
      # The variable of all of glibc's tunables.
      TUNABLES = "GLIBC_TUNABLES"
      OF_GLIBC = [TUNABLES, "MALLOC_TRACE", *GLIBC.values].freeze
      # The variable of some build of jemalloc, or a misspelling of it. Builds differ in the prefix.
      CONF = /\A(.*?)_?MALLOC_?CONF\z/i

      def initialize(inputs)
        @inputs = inputs
        @allocator = inputs.allocator
        @environment = inputs.environment
        @variables = inputs.variables.reject { |_name, value| value.empty? }.transform_keys(&:name)
        @settings = @allocator.settings.values.map { |setting| current(setting) }
        @values = @settings.to_h { |setting| [setting.name, setting.value] }
        @harms = []
        @pairs = kept.transform_values { |text| [text, say(:as_given)] }
        judge
      end

      # @return [Hash{Symbol => Object}] the fields of a Lint, except its cost
      def body
        { allocator: @allocator.name, version: @allocator.version, environment: @environment,
          settings: @settings, problems: problems.partition { |problem| problem.severity == :warning }.flatten,
          recommendations: recommendations, recommended: recommended, tuning: tuning, reasons: reasons }
      end

      private

      def current(setting) = setting

      # Texts by name of the options to keep.
      def kept = {}

      # Fills @harms, and changes @pairs, which holds the value and reason of each option to set.
      def judge; end

      # True if a text set the option to its value.
      def taken?(setting) = !setting.given.nil? && setting.ignored.nil? && setting.source != "default"

      def judge_arenas(name)
        limit = @values[name]
        few = @environment.arenas
        excessive = [limit, @environment.threads].compact.min > [FEW_ARENAS, 4 * @environment.parallel].max
        harm(name, :too_many_arenas, say(:too_many_arenas, limit: limit, crowd: crowd)) if excessive
        return if limit <= few || (@pairs.key?(name) && !excessive)

        pair(name, few, say(few == 1 ? :one_arena : :fewer_arenas, limit: limit, few: few, crowd: crowd))
      end

      def crowd
        threads = @environment.threads
        say(threads ? :threads : :its_threads,
            threads: threads && Quantity.counted(threads, "threads"), processors: @environment.processors)
      end

      def harm(setting, id, text, replacement = nil) = @harms << [id, "#{setting}: #{text}", replacement]

      def pair(name, value, reason) = @pairs[name] = [value.to_s, reason]

      # The doctor's rules show whether the number of arenas does harm.
      def problems
        harms = @harms.map do |id, text, own|
          problem(id, id == :too_many_arenas ? :info : :warning, text, own || recommended)
        end
        of_variables = @variables.keys.filter_map { |name| of_variable(name) } unless @allocator.name == :unknown
        [*refused, *harms, *idle, *preload, *of_variables]
      end

      # Allocators that are loaded, but serve neither malloc nor, as far as they report, a library.
      def idle
        @allocator.others.select { |one| one.prefix.empty? && !one.allocated_bytes&.positive? }.map do |one|
          problem(:idle_allocator, :warning, say(:idle, name: one.name, path: one.path, reason: one.reason),
                  say(:start_under, given: one.name == :jemalloc ? one.name : one.path))
        end
      end

      # The variable names an allocator that is not loaded.
      def preload
        name = @environment.variables[:LD_PRELOAD]&.slice(/jemalloc|mimalloc|tcmalloc/)
        return if name.nil? || [@allocator, *@allocator.others].any? { |found| found.name.name == name }

        problem(:preload_without_effect, :warning, say(:preload, name: name), say(:start))
      end

      # A problem for each text that the allocator did not accept.
      def refused = @allocator.settings.values.select(&:ignored).map { |setting| refusal(setting, setting.ignored) }

      def refusal(setting, reason)
        place = source_of(setting)
        text = say(setting.name == setting.given ? :refused : :refused_value,
                   setting: setting.name, given: Field.excerpt(setting.given), reason: reason)
        text = "#{place}: #{text}" if place
        problem(:invalid_value, :warning, text, recommended || ("unset #{place}" if @variables[place]))
      end

      # The environment variable, or jemalloc's other source of options, whose text names the setting.
      def source_of(_setting) = nil

      # A problem if the variable does not have the effect that its name promises.
      def of_variable(name)
        reader = reader(name)
        return misspelling(name) if reader.nil?
        return foreign(name, reader) if reader != @allocator.name

        unset(:ignored_environment, name, say(:ignored)) if @inputs.secure
      end

      # The allocator that reads a name; nil if none does, as for MALLOC_CONF if this jemalloc reads another variable.
      def reader(name)
        return :jemalloc if name == conf
        return :glibc if OF_GLIBC.include?(name)

        %i[mimalloc tcmalloc].find { |allocator| name.downcase.start_with?("#{allocator}_") }
      end

      def conf = @inputs.conf_variable || "MALLOC_CONF"

      # A jemalloc with the prefix "_rjem_" reads _RJEM_MALLOC_CONF.
      def misspelling(name)
        prefixes = @allocator.others.map(&:prefix) - [""]
        right = meant(name)
        return if right.nil? || prefixes.any? { |prefix| name.casecmp?("#{prefix}MALLOC_CONF") }

        reader = reader(right)
        text = reader == @allocator.name ? :misspelt : :misspelt_of_another
        unset(:misspelt_variable, name, say(text, right: right, reader: reader))
      end

      # A name that differs from glibc's in few characters may well be unrelated.
      def meant(name)
        return conf if name.match?(CONF)
        return unless defined?(DidYouMean::Levenshtein)

        OF_GLIBC.find { |known| DidYouMean::Levenshtein.distance(name.upcase, known) <= 2 }
      end

      # A variable of another allocator. A user who sets MALLOC_CONF expects jemalloc to serve malloc, but
      # MALLOC_ARENA_MAX is often set for any allocator. The dynamic linker reads GLIBC_TUNABLES too.
      def foreign(name, reader)
        return if name == TUNABLES && !@variables[name].include?("glibc.malloc.")

        severity = reader == :glibc ? :info : :warning
        text = say(reader == :jemalloc ? :foreign_conf : :foreign, reader: reader)
        unset(:other_allocator, name, text, severity: severity, replacement: (say(:start) if reader == :jemalloc))
      end

      def unset(id, name, text, severity: :warning, replacement: nil)
        problem(id, severity, "#{name}: #{text}", replacement || "unset #{name}")
      end

      def recommendations
        @recommendations ||= @pairs.map do |name, (value, reason)|
          Recommendation.capture({ name: name, text: assignment(name, value), now: @values[name], reason: reason })
        end
      end

      def recommended = (line(recommendations.map(&:text)) unless recommendations.empty? || @inputs.secure)

      def tuning = nil

      def reasons
        { **@allocator.reasons.slice(:name, :settings, *@allocator.settings.keys),
          **(recommended ? {} : { recommended: nothing_recommended }) }
      end

      def nothing_recommended
        return say(:only_two) if instance_of?(SettingsCheck)
        return say(:secure) if @inputs.secure

        say(tuning ? :defaults_suit_but : :defaults_suit)
      end

      def say(name, **figures) = WORDS.fill(name, { allocator: @allocator.name, **figures })

      def problem(id, severity, text, replacement = nil)
        Problem.capture({ id: id, severity: severity, text: text, replacement: replacement })
      end
    end
  end
end
