# frozen_string_literal: true

module Memscope
  class Report
    # What text for people is set with: 80 columns, box-drawing characters where the reader's encoding has them.
    class Page
      # Columns.
      WIDTH = 80
      UNICODE = { branch: "├─ ", last: "└─ ", bar: "│   ", gap: "    ", dot: " · ", unknown: "–" }.freeze
      ASCII = { branch: "|- ", last: "`- ", bar: "|   ", gap: "    ", dot: " - ", unknown: "-" }.freeze
      # What terminals give two columns: East Asian Wide and Fullwidth of UAX #11, emoji among them, by blocks.
      WIDE = [0x1100..0x115f, 0x2e80..0x303e, 0x3041..0xa4cf, 0xa960..0xa97c, 0xac00..0xd7a3, 0xf900..0xfaff,
              0xfe30..0xfe6b, 0xff01..0xff60, 0xffe0..0xffe6, 0x16fe0..0x1b2fb, 0x1f300..0x1f64f, 0x1f680..0x1f6ff,
              0x1f900..0x1f9ff, 0x1fa70..0x1faff, 0x20000..0x3fffd].freeze
      # What they give none.
      NARROW = /[\p{Mn}\p{Me}\p{Cf}]/
      private_constant :UNICODE, :ASCII, :WIDE, :NARROW

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

      # @param text [String]
      # @param columns [Integer]
      # @return [String] as much of it as fits into so many columns of a terminal, in the page's encoding
      def cut(text, columns)
        text = encoded(text)
        return text[0, columns] if text.ascii_only?

        left = columns
        text.each_char.take_while { |character| (left -= columns_of(character)) >= 0 }.join
      end

      private

      def columns_of(character)
        return 0 if character.match?(NARROW)

        WIDE.any? { |block| block.cover?(character.ord) } ? 2 : 1
      end

      # Versions are printed without what a build adds: "5.3.0-0-g54eaed1d8b56" is 5.3.0.
      def allocator(malloc)
        return "what serves malloc is unknown" if malloc.name == :unknown

        version = malloc.version && (malloc.version[/\A\d+(\.\d+)+/] || malloc.version)
        "#{[malloc.name, version].compact.join(' ')} serves malloc (#{'not ' unless malloc.proved?}proved)"
      end
    end
  end
end
