# frozen_string_literal: true

module Memscope
  class Report
    # What text for people is set with: 80 columns, box-drawing characters where the reader's encoding has them.
    class Page
      # Columns.
      WIDTH = 80
      UNICODE = { branch: "├─ ", last: "└─ ", bar: "│   ", gap: "    ", dot: " · ", unknown: "–" }.freeze
      ASCII = { branch: "|- ", last: "`- ", bar: "|   ", gap: "    ", dot: " - ", unknown: "-" }.freeze
      private_constant :UNICODE, :ASCII

      # @param unicode [Boolean] false: plain ASCII
      def initialize(unicode:)
        @unicode = unicode
        @glyphs = unicode ? UNICODE : ASCII
        freeze
      end

      # @return [String] what stands for a number that is not known
      def unknown = @glyphs[:unknown]

      # @return [String] parts of a line with a dot between them; those that do not fit go to the next line
      def joined(parts, indent: "")
        lines = parts.each_with_object([]) do |part, filled|
          extended = filled.last && "#{filled.last}#{@glyphs[:dot]}#{part}"
          extended && extended.length <= WIDTH ? filled[-1] = extended : filled << "#{indent}#{part}"
        end
        lines.join("\n")
      end

      # @return [String] words wrapped to the page, each line indented, those after the first by `hanging` more
      def wrapped(text, indent: "  ", hanging: 2)
        width = WIDTH - indent.length - hanging
        lines = text.tr("\n", " ").scan(/\S.{0,#{width - 1}}(?=\s|\z)|\S{1,#{width}}/)
        "#{indent}#{lines.join("\n#{indent}#{' ' * hanging}")}"
      end

      # @param ledger [Ledger]
      # @return [String] whose process it is, and what serves its malloc
      def title(ledger)
        joined(["memscope #{ledger.memscope}", "ruby #{ledger.ruby}", allocator(ledger.allocator), "pid #{ledger.pid}"])
      end

      # Walks a tree in order.
      #
      # @param nodes [Array<Object>]
      # @yieldparam node [Object] expected to return the nodes below it
      # @return [Array<Array(String, Object)>] each node with the branches to draw before it
      def branches(nodes, before = "", &below)
        nodes.each_with_index.flat_map do |node, index|
          last = index == nodes.length - 1
          [["#{before}#{@glyphs[last ? :last : :branch]}", node],
           *branches(yield(node), "#{before}#{@glyphs[last ? :gap : :bar]}", &below)]
        end
      end

      # @return [String] in the page's encoding
      def encoded(text)
        @unicode ? text : text.encode(Encoding::US_ASCII, invalid: :replace, undef: :replace, replace: "?")
      end

      private

      # Versions are printed without what a build adds: "5.3.0-0-g54eaed1d8b56" is 5.3.0.
      def allocator(malloc)
        return "what serves malloc is unknown" if malloc.name == :unknown

        version = malloc.version && (malloc.version[/\A\d+(\.\d+)+/] || malloc.version)
        "#{[malloc.name, version].compact.join(' ')} serves malloc (#{'not ' unless malloc.proved?}proved)"
      end
    end
  end
end
