# frozen_string_literal: true

require_relative "../malloc_conf"

module Memscope
  class Lint < Reading
    # The verdict if jemalloc serves malloc.
    #
    # @api private
    class Jemalloc < Verdict
      LINK = "/etc/malloc.conf"
      # Pages that are kept longer than this are as good as never returned.
      LONG_MS = 60_000
      # The decay time for containers and forked processes (jemalloc's TUNING.md: low resource consumption).
      SHORT_MS = 1000
      # jemalloc's default decay time of dirty pages (DIRTY_DECAY_MS_DEFAULT).
      USUAL_MS = 10_000
      # The values with which an option is off, besides its default.
      OFF = [nil, "never", "not supported"].freeze
      # The valid numbers by option; narenas is below MALLOCX_ARENA_LIMIT (jemalloc/internal/arena_types.h).
      NUMBERS = { "narenas" => 1..4094, "max_background_threads" => 1..4, "lg_prof_sample" => 0..62,
                  "lg_prof_interval" => -1..62 }.freeze
      WORDS = { "dss" => %w[disabled primary secondary], "percpu_arena" => %w[disabled percpu phycpu],
                "thp" => %w[default always never], "metadata_thp" => %w[disabled auto always],
                "junk" => %w[true false alloc free], "zero_realloc" => %w[alloc free abort] }.freeze
      # Options of earlier versions, and the options that replaced them, which have other units.
      REPLACED = { "decay_time" => "dirty_decay_ms", "lg_dirty_mult" => "dirty_decay_ms" }.freeze

      private

      # A value that changed since the start overrides the options.
      def shown(setting)
        name = setting.name.to_sym
        current = @inputs.current.fetch(name, setting.value)
        return super if current == setting.value

        stopped = name == :background_thread && !current && @environment.forked?
        Setting.capture({ **super.to_h, value: current, source: stopped ? "fork" : "mallctl" })
      end

      # --- The texts

      # Where the recommended options belong: in the environment, unless jemalloc ignores it.
      def target = @inputs.secure? ? link : @inputs.conf_variable

      def link = @inputs.confs.map(&:source).find { |source| source.start_with?("/") } || LINK

      def confs = @inputs.confs.reject { |conf| conf.text.to_s.empty? }

      def kept
        conf = confs.find { |candidate| candidate.source == target }
        pairs = (conf ? taken(conf) : {}).select { |name, _text| setting(name).value == @values[name] }
        pairs.to_h { |name, text| [name, @values[name].nil? ? text : @values[name].to_s] }
      end

      # The pairs in a conf's text whose name and value jemalloc accepts.
      def taken(conf) = MallocConf.parse(conf.text).first.select { |name, value| takes?(name, value) }.to_h

      def takes?(name, text)
        return MallocConf::UNREPORTED[name]&.first&.match?(text) if unreported?(name)
        return false unless option?(name) && range(name)&.cover?(Integer(text, exception: false)) != false

        setting(name).given != text || setting(name).ignored.nil?
      end

      def range(name) = name.end_with?("_decay_ms") ? -1..Native::MAX_DECAY_MS : NUMBERS[name]

      def setting(name) = @allocator.settings[name.to_sym]

      def option?(name) = !setting(name)&.value.nil? || unreported?(name)

      # Whether jemalloc has the option but does not report its value.
      def unreported?(name) = !setting(name).nil? && setting(name).value.nil? && setting(name).ignored.nil?

      def refused = confs.flat_map { |conf| conf_problems(conf) }

      def conf_problems(conf)
        pairs, rest = MallocConf.parse(conf.text)
        repeated = pairs.map(&:first).tally.select { |_name, count| count > 1 }.keys
        found = [*pairs.filter_map { |name, value| pair_problem(name, value) }, *rest_problem(rest),
                 *repeated.map { |name| [:given_twice, :info, "#{name} is given more than once; the last one counts"] }]
        found.map { |id, severity, text| problem(id, severity, "#{conf.source}: #{text}", replacement_of(conf)) }
      end

      def pair_problem(name, value)
        pair = excerpt("#{name}:#{value}")
        unless option?(name)
          return [:unknown_option, :warning, "#{pair}: this jemalloc has no such option#{hint(name)}"]
        end
        return if unreported?(name) ? takes?(name, value) : !refused?(name, value)

        kept = unreported?(name) ? "does not report this option" : "keeps #{setting(name).value}"
        [:invalid_value, :warning, "#{pair}: jemalloc #{kept}#{"; valid: #{valid(name)}" if valid(name)}"]
      end

      def refused?(name, value) = setting(name).ignored && setting(name).given == value

      def hint(name)
        replaced = REPLACED[name.downcase]
        return "; #{replaced} replaced it" if replaced

        nearest = Spelling.nearest(name, @settings.reject { |setting| setting.value.nil? }.map(&:name))
        "; did you mean #{nearest}?" if nearest
      end

      # The values that an option takes, for people; nil if they are not known.
      def valid(name)
        return MallocConf::UNREPORTED[name]&.last if unreported?(name)
        return "an integer from #{range(name).begin} to #{range(name).end}" if range(name)

        words = WORDS[name] || (%w[true false] if [true, false].include?(setting(name).value))
        "#{words[0..-2].join(', ')} or #{words.last}" if words
      end

      def rest_problem(rest)
        return [] if rest.nil?
        return [[:malformed, :info, "the text ends with a comma; jemalloc complains at every start"]] if rest.empty?

        [[:malformed, :warning,
          "jemalloc stops reading at #{excerpt(rest)}; valid: name:value pairs with a comma between two"]]
      end

      def excerpt(text) = (text.length > 40 ? "#{text[0, 37]}..." : text).inspect

      # --- The rules

      def judge
        judge_arenas("narenas") if @values["narenas"] && [nil, "disabled"].include?(@values["percpu_arena"])
        short = @environment.memory_limit_bytes || @environment.forking?
        judge_decay("dirty_decay_ms", short ? SHORT_MS : USUAL_MS, "freed pages stay resident")
        judge_decay("muzzy_decay_ms", 0, "pages freed with MADV_FREE stay in RSS")
        judge_background_thread if setting("background_thread")&.value
        judge_huge_pages
        judge_unwanted({ "junk" => "false", "zero" => false }, :debugging,
                       "jemalloc writes to every block it allocates or frees; use this for debugging only",
                       "for debugging only")
      end

      def judge_decay(name, wanted, effect)
        now = @values[name]
        return if now.nil?

        effect = "#{effect} #{now.negative? ? 'for ever' : "for #{format('%g', now / 1000.0)} s"}"
        kept_long = now.negative? || now > LONG_MS
        harm(name, :never_returned, effect) if kept_long
        pair(name, wanted, "#{effect}#{container}") if kept_long || (now > wanted && !@pairs.key?(name))
      end

      def container
        limit = @environment.memory_limit_bytes
        return ", in a container of #{Report::Quantity.size(limit)}" if limit

        ", in each of the forked processes" if @environment.forking?
      end

      # Background threads do not survive a fork, and jemalloc's manual warns against starting them while jemalloc
      # initialises (opt.background_thread).
      def judge_background_thread
        tune = "Memscope.tune(background_thread: true)"
        if @environment.forking?
          harm("background_thread", :background_thread,
               "jemalloc's background threads do not survive a fork; turn them on in each forked process", tune)
          undo("background_thread", "false", "turned on after the fork, in each process")
        elsif @pairs.key?("background_thread")
          pair("background_thread", "true", "as given; #{tune} is a safer way to turn it on")
        end
      end

      def judge_huge_pages
        if @environment.thp_enabled? == false
          judge_unwanted({ "thp" => "default", "metadata_thp" => "disabled" }, :without_effect,
                         "huge pages are turned off in this process, as in any CRuby",
                         "huge pages are turned off in this process")
        end
        return unless @environment.thp_always? && !OFF.include?(@values["thp"])

        harm("thp:#{@values['thp']}", :huge_pages,
             "the system makes huge pages even of memory that jemalloc returned")
        pair("thp", "never", "huge pages fill in memory that jemalloc returned: RSS grows without any allocation")
      end

      def judge_unwanted(options, id, effect, reason)
        options.each do |name, off|
          value = @values[name]
          next if value == off || OFF.include?(value)

          harm("#{name}:#{value}", id, effect)
          undo(name, off, reason)
        end
      end

      # Leaving the option out is enough if no other source sets it.
      def undo(name, off, reason)
        @pairs.delete(name)
        elsewhere = confs.reject { |conf| conf.source == target }.flat_map { |conf| MallocConf.parse(conf.text).first }
        pair(name, off, reason) if setting(name).source != target || elsewhere.assoc(name)
      end

      # --- What to paste

      def assignment(name, value) = "#{name}:#{value}"

      def recommended
        return if recommendations.empty?

        pairs = recommendations.map(&:text).join(",")
        @inputs.secure? ? linked(pairs) : "#{target}=#{quoted(pairs)}"
      end

      # Background threads are not among the pairs: see judge_background_thread.
      def tuning
        decays = @pairs.slice("dirty_decay_ms", "muzzy_decay_ms").reject { |name, (value)| value == @values[name].to_s }
        arguments = decays.map { |name, (value)| "#{name}: #{value}" }
        arguments << "background_thread: true" if @values["background_thread"] == false
        format("Memscope.tune(%s)", arguments.join(", ")) if arguments.any?
      end

      def replacement = recommended || (target == link ? "rm #{link}" : "unset #{target}")

      # The replacement for one conf: the recommended options, or else the given options minus the mistakes.
      def replacement_of(conf)
        return replacement if conf.source == target
        return unless conf.source == link

        pairs = taken(conf)
        pairs.empty? ? "rm #{link}" : linked(pairs.map { |name, value| assignment(name, value) }.join(","))
      end

      def linked(pairs) = "ln -sfn #{quoted(pairs)} #{link}"

      def nothing_recommended
        ["jemalloc's own defaults suit this process", *(", apart from what Memscope.tune sets" if tuning)].join
      end
    end
    private_constant :Jemalloc
  end
end
