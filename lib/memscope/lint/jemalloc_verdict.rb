# frozen_string_literal: true

require_relative "../reading"
require_relative "jemalloc_conf"
require_relative "jemalloc_options"
require_relative "jemalloc_policy"
require_relative "verdict"

module Memscope
  class Lint < Reading
    # The verdict where jemalloc serves malloc.
    class JemallocVerdict < Verdict
      LINK = "/etc/malloc.conf"
      private_constant :LINK

      private

      # What has changed since the start goes before what the options say.
      def shown(setting)
        name = setting.name.to_sym
        current = @evidence.current.fetch(name, setting.value)
        return super if current == setting.value

        Setting.capture({ **super.to_h, value: current, source: stopped?(name, current) ? "fork" : "mallctl" })
      end

      def stopped?(name, current) = name == :background_thread && !current && @surroundings.forked?

      def problems
        pasted = recommended || unset
        [*@evidence.confs.select(&:text).flat_map { |conf| conf_problems(conf) }, *policy.problems(pasted),
         *@variables.problems(pasted)]
      end

      def conf_problems(conf)
        JemallocConf.new(conf, options, @allocator).problems.map do |id, severity, text|
          problem(id, severity, "#{conf.source}: #{text}", replacement(conf))
        end
      end

      # Of the text that the recommendation takes the place of, that; else the same text without its mistakes.
      def replacement(conf)
        return recommended || unset if conf.source == target
        return unless conf.source == link

        repaired = JemallocConf.new(conf, options, @allocator).meant.map { |pair| pair.join(":") }.join(",")
        linked(repaired)
      end

      def unset = target == link ? "rm #{link}" : "unset #{target}"

      # Where the recommended options are to stand: in the environment, unless that is ignored.
      def target = @evidence.secure? ? link : @evidence.conf_variable

      def link
        @evidence.confs.map(&:source).find { |source| source.start_with?("/") } || LINK
      end

      def policy = @policy ||= JemallocPolicy.new(settings, @surroundings, meant, elsewhere)

      # What the target was meant to say.
      def meant
        conf = @evidence.confs.find { |candidate| candidate.source == target && candidate.text }
        text = @variables.meant[target]
        conf ||= Evidence::Conf.capture({ source: target, text: text }) if text
        conf ? JemallocConf.new(conf, options, @allocator).meant : {}
      end

      # Options that other texts give.
      def elsewhere
        texts = @evidence.confs.reject { |conf| conf.source == target }.filter_map(&:text)
        texts.flat_map { |text| ConfText.new(text).exact.map(&:key) }
      end

      def options = @options ||= JemallocOptions.new(@allocator.settings)

      def recommendations
        @recommendations ||= policy.pairs.map do |name, (value, reason)|
          now = settings.find { |setting| setting.name == name }&.value
          Recommendation.capture({ name: name, text: "#{name}:#{value}", now: now, reason: reason })
        end
      end

      def recommended
        return if recommendations.empty?

        pairs = recommendations.map(&:text).join(",")
        @evidence.secure? ? linked(pairs) : "#{target}=#{quoted(pairs)}"
      end

      def linked(pairs) = "ln -sfn #{quoted(pairs)} #{link}"

      def nothing_recommended = "jemalloc's own defaults suit this process"
    end
    private_constant :JemallocVerdict
  end
end
