# frozen_string_literal: true

module Memscope
  class Lint < Reading
    # The rules for glibc's malloc.
    # @api private
    class Glibc < SettingsCheck
      MEBIBYTE = Quantity::MEBIBYTE
      # By option: the value above which it does harm, then the problem's id, and the text that explains why.
      MAX = {
        "trim_threshold" => [64 * MEBIBYTE, :never_returned, :keeps],
        "mmap_threshold" => [32 * MEBIBYTE, :never_returned, :keeps_smaller],
        "top_pad" => [64 * MEBIBYTE, :never_returned, :keeps],
        "perturb" => [0, :debugging, :perturbs]
      }.freeze
      # A number in C's notation.
      NUMBER = /\A\s*\+?(\d+|0x\h+)\s*\z/i
      # glibc's default limit of arenas (malloc/arena.c, NARENAS_FROM_NCORES), per CPU that the process may run on.
      ARENAS_PER_CPU = [0].pack("J").bytesize == 8 ? 8 : 2

      private

      # Unless arena_max is set, the limit on arenas follows from the number of CPUs.
      def current(setting)
        return setting unless setting.name == "arena_max" && setting.value.nil?

        Allocator::Setting.capture({ **setting.to_h, value: ARENAS_PER_CPU * @environment.cpus })
      end

      # Options without a variable of their own stay in GLIBC_TUNABLES, where they are.
      def kept
        @allocator.settings.values.select { |setting| taken?(setting) && GLIBC.key?(setting.name) }
                  .to_h { |setting| [setting.name, setting.value.to_s] }
      end

      def taken?(setting) = super && setting.given.match?(NUMBER)

      # glibc 2.38 and earlier read the number that a text begins with: 128 of "128k". glibc silently skips the parts of
      # GLIBC_TUNABLES that it does not understand.
      def refused
        given = @allocator.settings.values.select(&:given)
        cut = given.select { |one| one.ignored.nil? && !one.given.match?(NUMBER) }
        cut = cut.map { |setting| refusal(setting, say(:reads, value: setting.value)) }
        text = @variables[TUNABLES]
        return [*super, *cut] if !text&.include?("malloc.") || @inputs.secure || given.any?

        [*super, *cut, unset(:invalid_value, TUNABLES, say(:no_tunable, given: Field.excerpt(text)))]
      end

      def source_of(setting)
        name = GLIBC[setting.name]
        @variables[name.to_s] == setting.given ? name : TUNABLES
      end

      def judge
        judge_arenas("arena_max") if @environment.threads.to_i > 1
        MAX.each do |name, (most, id, reason)|
          next unless @pairs.key?(name) && @values[name] > most

          setting = id == :never_returned ? "#{name} (#{Quantity.size(@values[name])})" : name
          harm(setting, id, say(reason), "unset #{source_of(@allocator.settings[name.to_sym])}")
          @pairs.delete(name)
        end
      end

      def assignment(name, value) = "#{GLIBC.fetch(name)}=#{value}"

      def line(assignments) = assignments.join(" ")

      def reasons
        callers = @inputs.mallopt_callers.map { |path| path.empty? ? say(:the_program) : path }
        changed = say(:mallopt, callers: callers.join(", "))
        { **super.except(:arena_max), **(callers.empty? ? {} : { mallopt: changed }) }
      end
    end
  end
end
