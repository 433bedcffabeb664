# frozen_string_literal: true

module Memscope
  class Lint < Reading
    # The rules for jemalloc. It prints by itself, on standard error, which pairs of its options are invalid.
    # @api private
    class Jemalloc < SettingsCheck
      # Pages that are kept longer than this are as good as never returned.
      LONG_MS = 60_000
      # The decay time for containers and forked processes (jemalloc's TUNING.md: low resource consumption).
      SHORT_MS = 1000
      # jemalloc's default decay time of dirty pages (DIRTY_DECAY_MS_DEFAULT).
      USUAL_MS = 10_000
      # Characters that a shell may interpret.
      SPECIAL = %r{[^\w:,.=/+-]}
      # Options with values that do harm: the problem's id, and the value with which each is off.
      OFF = { "background_thread" => %i[background_thread false], "thp" => %i[huge_pages never],
              "junk" => %i[debugging false], "zero" => %i[debugging false],
              "prof" => %i[crashing_profiler false] }.freeze
      # A fork ends background threads. jemalloc's manual also warns against starting them while jemalloc initialises.
      TUNE = "Memscope.tune(background_thread: true)"

      private

      # A value that changed since the start overrides the options.
      def current(setting)
        name = setting.name.to_sym
        value = @inputs.current.fetch(name, setting.value)
        return setting if value == setting.value

        stopped = name == :background_thread && !value && @environment.forked?
        Allocator::Setting.capture({ **setting.to_h, value: value, source: stopped ? "fork" : "mallctl" })
      end

      # The recommended text replaces the variable's text.
      def kept
        @allocator.settings.values.select { |one| one.source == conf && taken?(one) }
                  .select { |one| one.value == @values[one.name] }.to_h { |one| [one.name, one.given] }
      end

      def source_of(setting)
        @inputs.confs.reverse.find { |conf| conf[:text].to_s.include?(setting.given) }&.fetch(:source)
      end

      def judge
        judge_arenas("narenas") if @values["narenas"] && [nil, "disabled"].include?(@values["percpu_arena"])
        short = @environment.memory_limit_bytes || @environment.forking?
        judge_decay("dirty_decay_ms", short ? SHORT_MS : USUAL_MS)
        judge_decay("muzzy_decay_ms", 0)
        OFF.each { |name, (id, off)| turn_off(name, id, off) if harmful?(name, @values[name]) }
      end

      def judge_decay(name, wanted)
        now = @values[name]
        return if now.nil?

        effect = say(:"#{name}.#{now.negative? ? 'for_ever' : 'for_a_time'}", seconds: format("%g", now / 1000.0))
        kept_long = now.negative? || now > LONG_MS
        harm(name, :never_returned, effect) if kept_long
        pair(name, wanted, "#{effect}#{container}") if kept_long || (now > wanted && !@pairs.key?(name))
      end

      def container
        limit = @environment.memory_limit_bytes
        return say(:in_a_container, limit: Quantity.size(limit)) if limit

        say(:in_each_process) if @environment.forking?
      end

      def harmful?(name, value)
        case name
        when "background_thread" then @environment.forking? && @allocator.settings[:background_thread]&.value
        when "thp" then @environment.thp_always? && ![nil, "never", "not supported"].include?(value)
        when "prof" then value == true && @allocator.version&.start_with?("5.3.0")
        else ![nil, false, "false"].include?(value)
        end
      end

      def turn_off(name, id, off)
        threads = id == :background_thread
        harm(threads ? name : "#{name}:#{@values[name]}", id, say(id), (TUNE if threads))
        pair(name, off, say(:"#{id}.off"))
      end

      def assignment(name, value) = "#{name}:#{value}"

      def line(pairs) = "#{conf}=#{pairs.join(',').gsub(SPECIAL) { |special| "\\#{special}" }}"

      # Background threads are not among the pairs: jemalloc's manual warns against starting them while jemalloc
      # initialises (opt.background_thread).
      def tuning
        decays = @pairs.slice("dirty_decay_ms", "muzzy_decay_ms")
        decays = decays.reject { |name, (value)| value == @values[name].to_s }
        arguments = decays.map { |name, (value)| "#{name}: #{value}" }
        arguments << "background_thread: true" if @values["background_thread"] == false
        "Memscope.tune(#{arguments.join(', ')})" if arguments.any?
      end
    end
  end
end
