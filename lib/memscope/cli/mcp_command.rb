# frozen_string_literal: true

require "io/wait"
require "stringio"

module Memscope
  module CLI
    # `memscope mcp` serves an assistant: commands that only read are tools of the Model Context Protocol, over standard
    # input and output. Their arguments and their texts are those of the command line.
    class McpCommand < Command
      WORDS = Words.beside(__FILE__)
      # The commands, in the order in which to ask them.
      TOOLS = %w[ps doctor watch report heap profile tags postmortem].freeze
      # Their options that are arguments. The others write files, collect garbage, or stop the process for long.
      ARGUMENTS = %i[pid top deep shared objects garbage mappings arenas size_classes workers settings paths_to strings
                     seconds backend by].freeze
      WITHOUT_PID = %w[ps postmortem].freeze
      TYPES = { NUMBER => "integer", FRACTION => "number" }.freeze
      # An answer is short, and comes before an assistant gives up.
      DEFAULTS = { top: 5, seconds: 20 }.freeze
      PART = { type: "integer", minimum: 1, description: WORDS["part"] }.freeze
      READS_ONLY = { read_only_hint: true, destructive_hint: false, open_world_hint: false }.freeze

      require_relative "mcp/answer"

      # Of an answer: meanwhile, no other call is answered, and none is cancelled.
      MOST = { seconds: 60 }.freeze
      SECONDS = Limit.seconds(MOST[:seconds], WORDS["seconds"]).freeze

      # A command that waits for nobody, and keeps the readings that it prints.
      module AtOnce
        def readings = @readings || []

        # The switches of its options that are arguments, and their limits.
        def arguments = @switches.slice(*ARGUMENTS).to_h { |name, switch| [name, [switch, limit_of(name)]] }

        private

        def deliver_readings(readings, **) = super.tap { @readings = readings }

        def observes? = false

        def limit_of(name) = name == :seconds ? SECONDS : super

        # Not longer than standard input is open.
        def sleep(seconds) = $stdin.wait(IO::PRIORITY, seconds)
      end
      private_constant :AtOnce

      private

      def perform
        Loading.gem("mcp", "it", version: "~> 1.9")
        MCP::Server::Transports::StdioTransport.new(server).open
        FINE
      rescue LoadError => e
        failure(e.message)
      end

      def server
        reporter = ->(error, _context) { @err.puts error.full_message(highlight: false) }
        MCP::Server.new(name: "memscope-ruby", version: VERSION, instructions: WORDS["instructions"],
                        tools: tools.map { |name| tool(name) }, capabilities: { tools: {} },
                        configuration: MCP::Configuration.new(exception_reporter: reporter))
      end

      # With --pid, they are about that process.
      def tools = @given.key?(:pid) ? TOOLS - WITHOUT_PID : TOOLS

      def tool(name)
        ask = method(:answer)
        description = "#{Help.summary(name).sub(/\A./, &:upcase)}. #{WORDS[name]}"
        MCP::Tool.define(name: name, description: description, annotations: READS_ONLY,
                         input_schema: schema(name)) do |server_context:, **arguments| # rubocop:disable Lint/UnusedBlockArgument
          answer, part = ask.call(name, **arguments)
          MCP::Tool::Response.new([{ type: "text", text: answer.text(part) }], structured_content: answer.hints,
                                                                               error: answer.failed)
        end
      end

      def schema(name)
        properties = command(name).arguments.to_h do |argument, (switch, limit)|
          type = switch.arg ? TYPES.fetch(limit&.type, "string") : "boolean"
          words = [*switch.desc.grep_v(/\Adefault: /), limit&.words]
          [argument, { type: type, description: words.compact.join(" "), default: DEFAULTS[argument],
                       maximum: MOST[argument] }.compact]
        end
        properties[:pid] = { type: "integer", enum: @given.values_at(:pid) } if @given.key?(:pid)
        { properties: { **properties, part: PART }, additionalProperties: false,
          required: @given.key?(:pid) || WITHOUT_PID.include?(name) ? [] : ["pid"] }
      end

      def command(name, out = nil) = CLI.named(name, TOOLS).new(out: out, err: out).extend(AtOnce)

      # Another part of the last answer is of the same reading.
      def answer(name, part: 1, **arguments)
        arguments.transform_values! { |value| whole(value) }
        question = [name, arguments]
        @last = [question, read(name, arguments)] unless part > 1 && @last&.first == question
        [@last.last, part]
      end

      # 8008.0 is an integer to a JSON schema.
      def whole(value) = value.is_a?(Float) && (value % 1).zero? ? value.to_i : value

      def read(name, arguments)
        out = StringIO.new.set_encoding(Encoding::UTF_8)
        asked = command(name, out)
        given = { **DEFAULTS.slice(*asked.arguments.keys), **@given.slice(:pid), **arguments }
        given.select! { |_option, value| value }
        asked.run(given.map { |option, value| value == true ? dashed(option) : "#{dashed(option)}=#{value}" })
        Answer.new(name, given, out.string, asked.readings, tools: tools)
      rescue Failure => e
        Answer.new(name, given, "#{out.string}#{e.message}", nil, tools: tools)
      end
    end
  end
end
