# frozen_string_literal: true

module Memscope
  class Lint < Reading
    # The verdict if glibc serves malloc.
    #
    # @api private
    class Glibc < Verdict
      MEBIBYTE = Report::Quantity::MEBIBYTE
      # If a container's limit is below this, it matters how much memory of freed large blocks glibc keeps.
      SMALL_CONTAINER = 1024 * MEBIBYTE
      # glibc's initial mmap and trim thresholds (DEFAULT_MMAP_THRESHOLD_MIN); setting either stops both from adapting.
      THRESHOLD = 131_072
      # By option: the value above which it does harm or has no effect, then the problem's id and reason.
      KEEPS = [:never_returned, "glibc keeps this much free memory in each arena"].freeze
      MOST = {
        "trim_threshold" => [64 * MEBIBYTE, *KEEPS],
        "mmap_threshold" => [32 * MEBIBYTE, :never_returned,
                             "blocks below this size come from glibc's heaps, which may keep them once freed"],
        "top_pad" => [64 * MEBIBYTE, *KEEPS],
        "perturb" => [0, :debugging, "glibc writes to every block it allocates or frees; use this for debugging only"],
        "check" => [0, :without_effect, "from glibc 2.34 on, only libc_malloc_debug.so checks the heap"]
      }.freeze
      # The valid values of the options that glibc bounds (elf/dl-tunables.list).
      RANGES = { "arena_max" => "1 or more", "arena_test" => "1 or more", "mmap_max" => "0 to 2147483647",
                 "perturb" => "0 to 255", "check" => "0 to 3" }.freeze
      # A number in C's notation. From 2.39 on, glibc rejects a text with anything after the number.
      NUMBER = /\A\s*\+?(\d+|0x\h+)\s*\z/i
      # Tunables of glibc's other parts (elf/dl-tunables.list of 2.26 to 2.43, and of its ports).
      FOREIGN = /\Aglibc\.(rtld|mem|cpu|elision|pthread|gmon|tune)\./
      MALLOC = "glibc.malloc."
      # glibc's default limit of arenas (malloc/arena.c, NARENAS_FROM_NCORES), per CPU that the process may run on.
      ARENAS_PER_CPU = [0].pack("J").bytesize == 8 ? 8 : 2

      private

      # Unless arena_max is set, the limit on arenas follows from the number of CPUs.
      def shown(setting)
        return super unless setting.name == "arena_max" && setting.value.nil?

        Setting.capture({ **super.to_h, value: ARENAS_PER_CPU * @environment.cpus })
      end

      # --- The texts

      # The settings, except tunables that glibc does not know: an unknown tunable was set somewhere, but has no value.
      def known
        @allocator.settings.values.reject do |setting|
          setting.ignored && setting.source != "default" && setting.value.nil?
        end
      end

      def kept = known.select { |setting| taken?(setting) }.to_h { |setting| [setting.name, setting.value.to_s] }

      def taken?(setting) = setting.ignored.nil? && setting.given&.match?(NUMBER)

      # Name and value of each tunable; the value is nil without an equals sign.
      def tunables
        text = @variables[Variables::TUNABLES] unless @inputs.secure?
        text.to_s.split(":").reject(&:empty?).map { |part| [*part.split("=", 2), nil].first(2) }
      end

      def refused = [*invalid_values, *tunables.flat_map { |pair| tunable_problem(*pair) }, *overridden]

      # glibc 2.38 and earlier read the number that a text begins with.
      def invalid_values
        known.select { |setting| setting.given && !taken?(setting) }.map do |setting|
          reason = setting.ignored || "glibc reads #{setting.value}"
          problem(:invalid_value, :warning, "#{place(setting)}, given #{setting.given.inspect}: #{reason}; " \
                                            "valid: #{RANGES.fetch(setting.name, '0 or more')}", replacement)
        end
      end

      def place(setting)
        name = "#{MALLOC}#{setting.name}"
        tunables.include?([name, setting.given]) ? "#{Variables::TUNABLES}: #{name}" : Variables::GLIBC[setting.name]
      end

      def tunable_problem(name, value)
        unless complete?(value)
          text = [name, value].compact.join("=").inspect
          return [tunable_mistake(:malformed, "#{text}; valid: name=value with a colon between two")]
        end
        return [] if name.match?(FOREIGN) || names.any? { |known| name == "#{MALLOC}#{known}" }

        [tunable_mistake(:unknown_option, "#{name}: glibc has no such tunable#{hint(name)}")]
      end

      def complete?(value) = !value.nil? && !value.match?(/[=,;\s]/)

      def tunable_mistake(id, text) = problem(id, :warning, "#{Variables::TUNABLES}: #{text}", replacement)

      def names = known.map(&:name)

      def hint(name)
        nearest = Spelling.nearest(name[/[^.]*\z/], names)
        "; did you mean #{MALLOC}#{nearest}?" if nearest
      end

      # A problem for each variable whose setting has a different value in GLIBC_TUNABLES. GLIBC_TUNABLES wins.
      def overridden
        Variables::GLIBC.filter_map do |name, variable|
          winner = @allocator.settings[name.to_sym]
          loser = @variables[variable]
          next unless loser && winner&.source == Variables::TUNABLES && winner.given != loser

          problem(:given_twice, :info, "#{variable}: #{Variables::TUNABLES} sets #{winner.given} and wins", replacement)
        end
      end

      # --- The rules

      def judge
        judge_arenas("arena_max") if @environment.threads.to_i > 1
        MOST.each { |name, (most, *problem)| judge_most(name, most, *problem) }
        judge_container
        judge_huge_pages
        order = Variables::GLIBC.keys
        @pairs = @pairs.sort_by { |name, _pair| [order.index(name) || order.size, name] }.to_h
      end

      def judge_most(name, most, id, reason)
        value = @values[name]
        return unless @pairs.key?(name) && value > most

        harm(id == :never_returned ? "#{name} (#{Report::Quantity.size(value)})" : name, id, reason)
        @pairs.delete(name)
      end

      # Measured: freed strings of 1 to 3 MB left 38 MB unreturned, or none with a fixed threshold. With a fixed
      # threshold, allocating 400 KB took 0.4 ms, most of it for page faults, instead of 0.01 ms.
      def judge_container
        limit = @environment.memory_limit_bytes
        return if limit.nil? || limit >= SMALL_CONTAINER
        return if %w[trim_threshold mmap_threshold].any? { |name| @pairs.key?(name) }

        pair("trim_threshold", THRESHOLD,
             "in a container of #{Report::Quantity.size(limit)}, glibc should return freed large blocks at once; by " \
             "default it raises its threshold for that, up to 64 MiB. With this setting, each block of 128 KiB or " \
             "more costs page faults")
      end

      def judge_huge_pages
        return unless @environment.thp_enabled? == false && @pairs.key?("hugetlb") && @values["hugetlb"] == 1

        harm("hugetlb", :without_effect, "huge pages are turned off in this process, as in any CRuby")
        @pairs.delete("hugetlb")
      end

      # --- What to paste

      def assignment(name, value)
        variable = Variables::GLIBC[name]
        variable ? "#{variable}=#{value}" : "#{MALLOC}#{name}=#{value}"
      end

      # Options without a variable of their own go into GLIBC_TUNABLES, with the tunables of glibc's other parts.
      def recommended
        return if @inputs.secure?

        malloc, own = recommendations.map(&:text).partition { |pair| pair.start_with?(MALLOC) }
        foreign = tunables.select { |name, value| name.match?(FOREIGN) && complete?(value) }
        text = [*foreign.map { |pair| pair.join("=") }, *malloc].join(":")
        own << "#{Variables::TUNABLES}=#{quoted(text)}" unless text.empty?
        own.join(" ") unless own.empty?
      end

      # If nothing is left to set, the command that unsets all of glibc's variables that are set.
      def replacement
        return recommended if recommended || @inputs.secure?

        given = [Variables::TUNABLES, *Variables::GLIBC.values].select { |name| @variables[name] }
        "unset #{given.join(' ')}" unless given.empty?
      end

      def reasons = { **super.except(:arena_max), **mallopt }

      def mallopt
        callers = @inputs.mallopt_callers.map { |path| path.empty? ? "the program" : path }
        callers.empty? ? {} : { mallopt: "#{callers.join(', ')} may have changed settings with mallopt" }
      end

      def nothing_recommended
        return "glibc ignores the environment of a set-user-ID program; only mallopt sets it up" if @inputs.secure?

        "glibc's own defaults suit this process"
      end
    end
    private_constant :Glibc
  end
end
