# frozen_string_literal: true

module Memscope
  class Lint < Reading
    # The rules for glibc's malloc.
    #
    # @api private
    class Glibc < SettingsCheck
      MEBIBYTE = Quantity::MEBIBYTE
      # If a container's limit is below this, it matters how much memory of freed large blocks glibc keeps.
      SMALL_CONTAINER = 1024 * MEBIBYTE
      # glibc's initial mmap and trim thresholds (DEFAULT_MMAP_THRESHOLD_MIN); setting either stops both from adapting.
      THRESHOLD = 131_072
      # By option: the value above which it does harm, then the problem's id and reason.
      KEEPS = [:never_returned, "glibc keeps this much free memory in each arena"].freeze
      MAX = {
        "trim_threshold" => [64 * MEBIBYTE, *KEEPS],
        "mmap_threshold" => [32 * MEBIBYTE, :never_returned,
                             "blocks below this size come from glibc's heaps, which may keep them once freed"],
        "top_pad" => [64 * MEBIBYTE, *KEEPS],
        "perturb" => [0, :debugging, "glibc writes to every block it allocates or frees; use this for debugging only"]
      }.freeze
      # A number in C's notation.
      NUMBER = /\A\s*\+?(\d+|0x\h+)\s*\z/i
      # glibc's default limit of arenas (malloc/arena.c, NARENAS_FROM_NCORES), per CPU that the process may run on.
      ARENAS_PER_CPU = [0].pack("J").bytesize == 8 ? 8 : 2

      private

      # Unless arena_max is set, the limit on arenas follows from the number of CPUs.
      def shown(setting)
        return super unless setting.name == "arena_max" && setting.value.nil?

        Setting.capture({ **super.to_h, value: ARENAS_PER_CPU * @environment.cpus })
      end

      # Options without a variable of their own stay in GLIBC_TUNABLES, where they are.
      def kept
        @allocator.settings.values.select { |setting| taken?(setting) && Variables::GLIBC.key?(setting.name) }
                  .to_h { |setting| [setting.name, setting.value.to_s] }
      end

      def taken?(setting) = super && setting.given.match?(NUMBER)

      # glibc 2.38 and earlier read the number that a text begins with: 128 of "128k".
      def refused
        cut = @allocator.settings.values.select { |one| one.given && one.ignored.nil? && !one.given.match?(NUMBER) }
        [*super, *cut.map { |setting| refusal(setting, "glibc reads #{setting.value}") }, *unread]
      end

      # glibc skips what it does not understand in GLIBC_TUNABLES without a word.
      def unread
        text = @variables[Variables::TUNABLES]
        return [] if !text&.include?("malloc.") || @inputs.secure? || @allocator.settings.each_value.any?(&:given)

        [problem(:invalid_value, :warning, "#{Variables::TUNABLES}: glibc finds no setting of malloc in " \
                                           "#{Field.excerpt(text)}; valid: glibc.malloc.NAME=VALUE, with : between",
                 "unset #{Variables::TUNABLES}")]
      end

      def source_of(setting)
        name = Variables::GLIBC[setting.name]
        @variables[name.to_s] == setting.given ? name : Variables::TUNABLES
      end

      def judge
        judge_arenas("arena_max") if @environment.threads.to_i > 1
        MAX.each { |name, (most, *problem)| judge_most(name, most, *problem) }
        judge_container
      end

      def judge_most(name, most, id, reason)
        value = @values[name]
        return unless @pairs.key?(name) && value > most

        harm(id == :never_returned ? "#{name} (#{Quantity.size(value)})" : name, id, reason,
             "unset #{source_of(@allocator.settings[name.to_sym])}")
        @pairs.delete(name)
      end

      # Measured: freed strings of 1 to 3 MB left 38 MB unreturned, or none with a fixed threshold. With a fixed
      # threshold, allocating 400 KB took 0.4 ms, most of it for page faults, instead of 0.01 ms.
      def judge_container
        limit = @environment.memory_limit_bytes
        return if limit.nil? || limit >= SMALL_CONTAINER
        return if %w[trim_threshold mmap_threshold].any? { |name| @pairs.key?(name) }

        pair("trim_threshold", THRESHOLD,
             "in a container of #{Quantity.size(limit)}, glibc should return freed large blocks at once; by " \
             "default it raises its threshold for that, up to 64 MiB. With this setting, each block of 128 KiB or " \
             "more costs page faults")
      end

      def assignment(name, value) = "#{Variables::GLIBC.fetch(name)}=#{value}"

      def recommended = (recommendations.map(&:text).join(" ") unless recommendations.empty? || @inputs.secure?)

      def reasons = { **super.except(:arena_max), **mallopt }

      def mallopt
        callers = @inputs.mallopt_callers.map { |path| path.empty? ? "the program" : path }
        callers.empty? ? {} : { mallopt: "#{callers.join(', ')} may have changed settings with mallopt" }
      end
    end
    private_constant :Glibc
  end
end
