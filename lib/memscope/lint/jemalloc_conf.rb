# frozen_string_literal: true

require_relative "../reading"
require_relative "conf_text"

module Memscope
  class Lint < Reading
    # One text of jemalloc's options: what is wrong in it, and what was meant by it.
    class JemallocConf
      # @param conf [Evidence::Conf]
      # @param options [JemallocOptions]
      # @param allocator [Allocator]
      def initialize(conf, options, allocator)
        @conf = conf
        @text = ConfText.new(conf.text)
        @options = options
        @settings = allocator.settings
      end

      # @return [Array<Array(Symbol, Symbol, String)>] of each problem: id, severity, what
      def problems
        [*@text.exact.filter_map { |pair| pair_problem(pair) }, *malformed,
         *@text.repeated.map { |key| [:given_twice, :info, "#{key} is given more than once; the last one counts"] }]
      end

      # @return [Hash{String => String}] the options it was to set, in texts that jemalloc takes
      def meant
        pairs = problems.empty? ? @text.exact : @text.meant
        pairs.each_with_object({}) do |pair, options|
          name = @options.include?(pair.key) ? pair.key : @options.meant(pair.key)
          value = name && @options.fitting(name, pair.value)
          options.update(name => value) if value
        end
      end

      private

      def pair_problem(pair)
        return [:unknown_option, :warning, unknown(pair)] unless @options.include?(pair.key)

        refusal = refusal(pair)
        [:invalid_value, :warning, "#{shown(pair)}: jemalloc #{refusal}"] if refusal
      end

      def refusal(pair)
        setting = @settings[pair.key.to_sym]
        if @options.unreported?(pair.key)
          "is not known to take this, and does not tell" unless @options.fitting(pair.key, pair.value)
        elsif setting.ignored && setting.given == pair.value
          "keeps #{setting.value}"
        end
      end

      def unknown(pair)
        replacing = @options.replacing(pair.key)
        meant = @options.meant(pair.key)
        hint = "; in its place there is #{replacing}" if replacing
        hint ||= "; #{meant} is meant" if meant
        "#{shown(pair)}: this jemalloc has no such option#{hint}"
      end

      def malformed
        return [[:malformed, :info, "ends with a comma: jemalloc complains at every start"]] if @text.trailing_comma?
        return [] unless @text.malformed

        [[:malformed, :warning, "jemalloc stops reading at #{shown(@text.malformed)}: it takes name:value pairs with " \
                                "a comma between them"]]
      end

      def shown(text)
        text = text.to_s
        (text.length > 40 ? "#{text[0, 37]}..." : text).inspect
      end
    end
    private_constant :JemallocConf
  end
end
