# frozen_string_literal: true

require_relative "../reading"
require_relative "glibc_policy"
require_relative "tunables_text"
require_relative "verdict"

module Memscope
  class Lint < Reading
    # The verdict where glibc serves malloc.
    class GlibcVerdict < Verdict
      # What each option takes, where glibc has a bound (elf/dl-tunables.list).
      RANGES = { "arena_max" => 1.., "arena_test" => 1.., "mmap_max" => 0..2_147_483_647, "perturb" => 0..255,
                 "check" => 0..3 }.freeze
      # What people write; glibc reads C's numbers to where they end, and from 2.39 on takes nothing else.
      NUMBER = /\A\s*\+?(\d+|0x\h+)\s*\z/i
      # Without any setting (malloc/arena.c, NARENAS_FROM_NCORES); glibc counts the CPUs that it may run on.
      ARENAS_PER_CPU = [0].pack("J").bytesize == 8 ? 8 : 2
      private_constant :RANGES, :NUMBER, :ARENAS_PER_CPU

      private

      # The number of arenas follows from that of the CPUs.
      def shown(setting)
        return super unless setting.name == "arena_max" && setting.value.nil?

        Setting.capture({ **super.to_h, value: ARENAS_PER_CPU * @surroundings.cpus })
      end

      def problems = [*super, *misread, *tunables_problems, *overridden, *policy.problems(replacement)]

      # A value of a variable is the variable's; glibc's own phrase says what is wrong with it.
      def refused
        given_wrong.map do |setting|
          problem(:invalid_value, :warning, "#{place(setting)}: #{setting.ignored}", replacement)
        end
      end

      def given_wrong = known.select(&:ignored)

      # 2.38 and earlier take the number that a text begins with.
      def misread
        known.select { |setting| setting.given && !setting.ignored && !setting.given.match?(NUMBER) }.map do |setting|
          problem(:invalid_value, :warning, "#{place(setting)}: glibc reads #{setting.value}", replacement)
        end
      end

      def place(setting)
        variable = tunables.any? { |part| part.name == setting.name && part.value == setting.given }
        where = variable ? "#{Variables::TUNABLES}: glibc.malloc.#{setting.name}" : Variables::GLIBC[setting.name]
        "#{where}, given #{setting.given.inspect}"
      end

      def known = @allocator.settings.values.reject { |setting| unknown?(setting) }

      # What glibc does not know has no value and is none of its defaults.
      def unknown?(setting) = setting.ignored && setting.source != "default" && setting.value.nil?

      def names = @names ||= known.map(&:name)

      def tunables
        @tunables ||= text ? text.meant : []
      end

      # nil where the variable is not given, or nobody listens.
      def text
        given = @variables[Variables::TUNABLES] || @variables.meant[Variables::TUNABLES]
        @text ||= TunablesText.new(given, names) if given
      end

      def tunables_problems
        return [] if @evidence.secure? || !@variables[Variables::TUNABLES]

        text.problems.map { |id, what| problem(id, :warning, "#{Variables::TUNABLES}: #{what}", replacement) }
      end

      # Both say it; GLIBC_TUNABLES wins.
      def overridden
        Variables::GLIBC.filter_map do |name, variable|
          winner = @allocator.settings[name.to_sym]
          loser = @variables[variable]
          next unless loser && winner&.source == Variables::TUNABLES && winner.given != loser

          problem(:given_twice, :info, "#{variable}: #{Variables::TUNABLES} says #{winner.given} and wins", replacement)
        end
      end

      def policy = @policy ||= GlibcPolicy.new(known.map { |setting| shown(setting) }, @surroundings, meant)

      # The options that were meant, in texts that glibc takes. GLIBC_TUNABLES wins.
      def meant
        variables = Variables::GLIBC.filter_map do |name, variable|
          value = @variables[variable] || @variables.meant[variable]
          [name, value] if value && names.include?(name)
        end
        options = variables.to_h.merge(tunables.reject(&:foreign?).to_h { |part| [part.name, part.value] })
        options.filter_map { |name, value| [name, fitting(name, value)] if fitting(name, value) }.to_h
      end

      def fitting(name, text) = ValueText.number(text.strip, RANGES.fetch(name, 0..))

      def recommendations
        @recommendations ||= ordered(policy.pairs).map do |name, (value, reason)|
          now = settings.find { |setting| setting.name == name }&.value
          Recommendation.capture({ name: name, text: assignment(name, value), now: now, reason: reason })
        end
      end

      # Always the same, however it came about.
      def ordered(pairs)
        variables = Variables::GLIBC.keys
        pairs.sort_by { |name, _recommendation| [variables.index(name) || variables.size, name] }
      end

      def assignment(name, value)
        variable = Variables::GLIBC[name]
        variable ? "#{variable}=#{value}" : "glibc.malloc.#{name}=#{value}"
      end

      # Options without a variable of their own go into GLIBC_TUNABLES, beside what is there for other parts of glibc.
      def recommended
        return if @evidence.secure?

        own, others = recommendations.map(&:text).partition { |pair| !pair.start_with?("glibc.") }
        others = [*tunables.select(&:foreign?).map(&:to_s), *others]
        own << "#{Variables::TUNABLES}=#{quoted(others.join(':'))}" unless others.empty?
        own.join(" ") unless own.empty?
      end

      # Where nothing is left to set, what is set goes.
      def replacement
        return recommended if recommended || @evidence.secure?

        given = [Variables::TUNABLES, *Variables::GLIBC.values].select { |name| @variables[name] }
        "unset #{given.join(' ')}" unless given.empty?
      end

      def reasons = { **super.except(:arena_max), **mallopt }

      def mallopt
        callers = @evidence.mallopt_callers.map { |path| path.empty? ? "the program" : path }
        callers.empty? ? {} : { mallopt: "#{callers.join(', ')} can have changed settings by mallopt" }
      end

      def nothing_recommended
        return "glibc ignores the environment of a set-user-ID program; only mallopt sets it" if @evidence.secure?

        "glibc's own defaults suit this process"
      end
    end
    private_constant :GlibcVerdict
  end
end
