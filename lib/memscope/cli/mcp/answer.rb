# frozen_string_literal: true

require "json"

module Memscope
  module CLI
    class McpCommand < Command
      # A command's text for an assistant, in parts, with its confidence, and what to ask next: the tools among the
      # commands that the text names.
      # @api private
      class Answer
        # Of a part of the text. With what is below it, an answer has at most 2,000 tokens of four bytes.
        MAX_BYTES = 6_800
        MAX_REASONS = 3
        MAX_HINTS = 3
        # What to ask next if the text names nothing.
        NEXT = { "ps" => "doctor", "report" => "doctor", "watch" => "doctor", "doctor" => "heap", "tags" => "heap",
                 "profile" => "heap" }.freeze
        # What to ask if a call failed and its text names nothing.
        FIRST = { tool: "ps", arguments: {} }.freeze
        COMMAND = /\bmemscope (#{TOOLS.join('|')})((?: --[a-z-]+(?:[= ][^\s`-][^\s`]*)?)+)/
        OPTION = /--([a-z-]+)(?:[= ]([^\s-]\S*))?/

        attr_reader :hints, :failed

        # @param readings [Array<Reading>, nil] nil if the command failed
        # @param tools [Array<String>] those that can be asked
        def initialize(tool, arguments, text, readings, tools: TOOLS)
          @call = { tool: tool, arguments: arguments }
          @parts = parts_of(text)
          @tools = tools
          @failed = readings.nil?
          @hints = { confidence: confidence(readings), next: suggested(text.gsub(/\s+/, " ")) }
        end

        # @param part [Integer] from 1
        # @return [String] this part of the text, and what is below it
        def text(part)
          part = part.clamp(1, @parts.size)
          [@parts[part - 1], rest(part), *below].compact.join("\n")
        end

        private

        def parts_of(text)
          text.scrub("?").lines(chomp: true).each_with_object([+""]) do |line, parts|
            line = line.byteslice(0, MAX_BYTES).scrub("")
            parts << +"" if parts.last.bytesize + line.bytesize > MAX_BYTES
            parts.last << "#{"\n" unless parts.last.empty?}#{line}"
          end
        end

        def rest(part)
          left = @parts.drop(part).sum { |one| one.lines.size }
          WORDS.fill("rest", left: left, call: told(@call, part: part + 1)) if left.positive?
        end

        def below
          top = WORDS.fill("top", top: @call[:arguments][:top]) if @call[:arguments].key?(:top) && !@failed
          [*top, "confidence: #{@hints[:confidence]}", *@hints[:next].map { |call| "next: #{told(call)}" }]
        end

        def told(call, **more) = "#{call[:tool]} #{JSON.generate({ **call[:arguments], **more })}"

        # What a reading lacks has a reason. A verdict is as certain as it says.
        def confidence(readings)
          return WORDS["failed"] unless readings

          share, = readings.grep(Verdict).map(&:confidence)
          return WORDS.fill(share.positive? ? "sure" : "early", share: (share * 100).round) if share

          reasons = readings.flat_map { |reading| reading.reasons.map { |name, why| "#{name} (#{why[0, 100]})" } }
          return WORDS[{ "profile" => "sampled", "ps" => "as_told" }.fetch(@call[:tool], "exact")] if reasons.empty?

          WORDS.fill("lacks", reasons: reasons.first(MAX_REASONS).join("; "))
        end

        def suggested(text)
          found = text.scan(COMMAND).map { |tool, options| { tool: tool, arguments: arguments(options) } }
          calls = found.select { |call| call[:arguments].key?(:pid) && !same?(call) }.uniq
          calls.empty? ? usual(text) : calls.first(MAX_HINTS)
        end

        def same?(call) = call[:tool] == @call[:tool] && @call[:arguments] >= call[:arguments]

        # About this process, or the first that is listed.
        def usual(text)
          return [FIRST].select { |call| @tools.include?(call[:tool]) && call[:tool] != @call[:tool] } if @failed

          pid = @call[:arguments][:pid] || text[/ (\d+) /, 1]&.to_i
          NEXT.key?(@call[:tool]) && pid ? [{ tool: NEXT[@call[:tool]], arguments: { pid: pid } }] : []
        end

        def arguments(options)
          options.scan(OPTION).filter_map do |name, value|
            name = name.tr("-", "_").to_sym
            value = value&.sub(/[.,;:)]+\z/, "")
            [name, value.nil? || NUMBER[value] || value] if ARGUMENTS.include?(name)
          end.to_h
        end
      end
    end
  end
end
