# frozen_string_literal: true

require_relative "../../value/quantity"

module Memscope
  module Report
    # Rows below headings, which text and HTML have in common. The last column of a listing is text: `long` says what
    # becomes of one that is too long for a line of text, :cut, :wrap, or :end (only its end is kept); :lines fit
    # already. A plain table has numbers only. `keys` has what the rows are about, for links.
    Table = Struct.new(:page, :headings, :rows, :long, :keys) do
      # @return [Array<String>] lines of text
      def to_a = page.lines_of(self)
    end

    # Sets text in the columns of a Display, with box-drawing characters or in plain ASCII.
    class Page
      # The width of a page, in columns, unless a terminal has another.
      WIDTH = 80
      # The least width of a terminal that a page fits itself to, in columns.
      NARROWEST = 40
      # The greatest such width.
      WIDEST = 400
      # The most columns of a paragraph: longer lines are hard to read.
      PARAGRAPH = 100
      # If only the end of a text is kept, that end has at least this many columns.
      SHORTEST = 8
      # Select Graphic Rendition of ECMA-48, by what is highlighted.
      HIGHLIGHTS = { heading: "1", critical: "1;31", warning: "1;33", info: "36" }.freeze
      UNICODE = { branch: "├─ ", last: "└─ ", bar: "│   ", gap: "    ", dot: " · ", unknown: "–",
                  plus_minus: "±", ellipsis: "…" }.freeze
      ASCII = { branch: "|- ", last: "`- ", bar: "|   ", gap: "    ", dot: " - ", unknown: "-",
                plus_minus: "+-", ellipsis: "..." }.freeze
      private_constant :PARAGRAPH, :SHORTEST, :HIGHLIGHTS, :UNICODE, :ASCII

      # @param allocator [Allocator]
      # @return [String] "glibc 2.36 serves malloc (proved)"
      def self.server(allocator)
        return "what serves malloc is unknown" if allocator.name == :unknown

        name = [allocator.name, allocator.short_version].compact.join(" ")
        "#{name} serves malloc (#{'not ' unless allocator.proved?}proved)"
      end

      # @return [Integer] columns
      attr_reader :width

      # @param unicode [Boolean] false: plain ASCII
      # @param width [Integer] columns
      # @param color [Boolean] whether `highlighted` does anything
      def initialize(unicode:, width: WIDTH, color: false)
        @unicode = unicode
        @width = width
        @color = color
        @glyphs = unicode ? UNICODE : ASCII
        freeze
      end

      # @return [Boolean] false: plain ASCII
      def unicode? = @unicode

      # @return [String] the mark of an unknown number
      def unknown = @glyphs[:unknown]

      # @return [String] the mark of a standard error
      def plus_minus = @glyphs[:plus_minus]

      # @param text [String] one line, already padded to its final width
      # @param as [Symbol] a key of HIGHLIGHTS
      # @return [String] bold or in colour on a terminal; else the text
      def highlighted(text, as = :heading)
        @color && !text.empty? ? "\e[#{HIGHLIGHTS.fetch(as)}m#{text}\e[0m" : text
      end

      # @return [String] parts of a line with a dot between them; those that do not fit start a new line
      def joined(parts, indent: "")
        lines = parts.each_with_object([]) do |part, filled|
          extended = filled.last && "#{filled.last}#{@glyphs[:dot]}#{part}"
          extended && extended.length <= @width ? filled[-1] = extended : filled << "#{indent}#{part}"
        end
        lines.join("\n")
      end

      # @return [String] words wrapped to the page, each line indented, lines after the first by `hanging` more
      def wrapped(text, indent: "  ", hanging: 2)
        width = [@width, PARAGRAPH].min - indent.length - hanging
        lines = text.tr("\n", " ").scan(/\S.{0,#{width - 1}}(?=\s|\z)|\S{1,#{width}}/)
        "#{indent}#{lines.join("\n#{indent}#{' ' * hanging}")}"
      end

      # @param ledger [Ledger]
      # @return [String] the process, and the library that serves its malloc
      def title(ledger)
        joined(["memscope #{ledger.memscope}", "ruby #{ledger.ruby}", Page.server(ledger.allocator),
                "pid #{ledger.pid}"])
      end

      # @param headings [Array<String>]
      # @param rows [Array<Array<String>>] each as long as the headings
      # @param keys [Array<Object, nil>, nil] for each row
      # @return [Table] of numbers
      def table(headings, rows, keys: nil) = Table.new(self, headings, rows, nil, keys)

      # @param long [Symbol] as in Table
      # @param keys [Array<String, nil>, nil] for each row
      # @return [Table] whose last column is text; the other columns are narrow
      def listing(headings, rows, long: :cut, keys: nil) = Table.new(self, headings, rows, long, keys)

      # Columns right-aligned under their headings, each after two blanks, or one if two would be too wide for the
      # page. If even one is too wide, the columns that do not fit follow in further tables, each of which repeats the
      # first column.
      #
      # @param table [Table]
      # @return [Array<String>]
      def lines_of(table)
        columns = [table.headings, *table.rows].transpose
        return listed(*columns, table.long) if table.long

        lots(aligned(columns)).flat_map.with_index do |lot, index|
          heading, *lines = lot.transpose.map { |cells| cells.join.rstrip }
          [*("" if index.positive?), highlighted(heading), *lines]
        end
      end

      # @param numbers [Array<Array<String>>] rows without their last column
      # @return [Integer] the columns that a listing leaves for its last column
      def room(numbers) = @width - aligned(numbers.transpose).sum { |column| column.first.length } - 2

      # Walks a tree in preorder.
      #
      # @param nodes [Array<Object>]
      # @yieldparam node [Object]
      # @yieldreturn [Array<Object>] the nodes below it
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
      # @return [String] the end of a long text, since that says most; a path is cut between directories if that leaves
      #   enough of it
      def ending(text, columns)
        columns = [columns, SHORTEST].max
        return text if text.length <= columns

        rest = text[(@glyphs[:ellipsis].length - columns)..]
        "#{@glyphs[:ellipsis]}#{rest[%r{\A.{0,#{columns / 2}}?(/.*)}, 1] || rest}"
      end

      private

      def listed(*numbers, texts, long)
        lines = aligned(numbers).transpose.zip(texts).map do |cells, text|
          before = "#{cells.join}  "
          indent = " " * before.length
          case long
          when :wrap then before + wrapped(text, indent: indent).delete_prefix(indent)
          when :lines then before + text.gsub("\n", "\n#{indent}  ")
          else "#{before}#{long == :end ? ending(text, @width - before.length) : text}"[0, @width].rstrip
          end
        end
        [highlighted(lines.first), *lines.drop(1)]
      end

      def aligned(columns)
        widths = columns.map { |column| column.map(&:length).max }
        gap = widths.sum + (2 * widths.length) <= @width ? "  " : " "
        columns.zip(widths).map { |column, width| column.map { |text| "#{gap}#{text.rjust(width)}" } }
      end

      # The columns in as many lots as the page needs, each beginning with the first column.
      def lots(columns)
        first, *others = columns
        others.each_with_object([[first]]) do |column, lots|
          wide = [*lots.last, column].sum { |one| one.first.length } > @width
          wide && lots.last.size > 1 ? lots << [first, column] : lots.last << column
        end
      end
    end

    # A reading as text: a title, sections with a blank line between them, the reasons of missing numbers, and a footer.
    # Subclasses define `sections`, an Array, and can override the rest. A section is an Array of lines, one String, or
    # nil; sections without lines are left out.
    class ReadingPage
      include Quantity

      # @param reading [Reading]
      # @param display [Hash{Symbol => Object}] unicode (false: plain ASCII), width and color, as Page takes them
      def initialize(reading, unicode: true, **display)
        @reading = reading
        @page = Page.new(unicode: unicode, **display)
      end

      # @return [String]
      def to_s
        lines = [[*title].map { |line| @page.highlighted(line) }, *sections, reasons, footer].map do |section|
          [*section].flat_map { |part| [*part] }
        end
        @page.encoded(lines.reject(&:empty?).map { |some| "#{some.join("\n")}\n" }.join("\n"))
      end

      # @return [Array<Table, String>] what HTML shows: tables and paragraphs, whose blanks mean nothing
      def parts = sections.flatten.compact

      # @return [Array<String>] the same as text, without title and reasons: for a page that has them itself
      def lines = parts.flat_map { |part| [*part] }

      private

      def title = @page.joined(["memscope #{@reading.memscope}", "ruby #{@reading.ruby}", *subject])

      def subject = ["pid #{@reading.pid}"]

      def reasons = explained(@reading.reasons)

      # Reasons as sentences, without the fields that they are about. By default, the reasons for :names and
      # :target_count are hidden: they matter only to a reader who passes on a dump or JSON.
      def sentences(hidden = %i[names target_count])
        @reading.reasons.except(*hidden).values.uniq.map { |why| sentence(why) }
      end

      def sentence(why)
        @page.wrapped(why.sub(/\Aa lower bound /, "Bytes are a lower bound ").sub(/\A[a-z]/, &:upcase).concat("."))
      end

      def footer = "  #{cost}"

      def cost
        cost = @reading.cost
        "read in #{milliseconds(cost.wall_us)} (#{milliseconds(cost.gvl_us)} under the GVL)"
      end

      # @param reasons [Hash{Symbol => String}]
      # @return [Array<String>]
      def explained(reasons, indent: "  ") = reasons.map { |id, why| @page.wrapped("#{id}: #{why}", indent: indent) }

      # The same under a heading, with one sentence for all the numbers that have the same reason; nil without reasons.
      def unavailable(reasons)
        return if reasons.empty?

        same = reasons.group_by(&:last).to_h { |why, pairs| [pairs.map(&:first).join(", "), why] }
        ["  unavailable or approximate:", *explained(same, indent: "    ")]
      end

      # A listing of the sums of rows, one line for each group of them. "%s" in a heading is the unit of bytes, "+"
      # stands for growth.
      #
      # @param columns [Hash{String => Symbol}, Array<Array(String, Symbol)>] the field below each heading
      # @param name [String] the heading of the groups
      # @param groups [Array<Array(String, Array<Object>)>] each with its rows; those without rows are left out
      # @param scale [Scale, nil] of the bytes; nil: they are shown to the byte
      # @param listing [Hash{Symbol => Object}] as for Page#listing
      def sums(columns, name, groups, scale = nil, **listing)
        groups = groups.reject { |_name, rows| rows.empty? }
        headings = columns.map { |heading, _field| heading.sub("%s", scale&.unit.to_s) }
        lines = groups.map do |group, rows|
          numbers = columns.map { |heading, field| [heading, field, rows.map { |row| value(row, field) }] }
          [*numbers.map { |heading, field, values| sum_cell(heading, field, values, scale) }, group]
        end
        @page.listing([*headings, name], lines, **listing)
      end

      def value(row, field) = row.public_send(field)

      def sum_cell(heading, field, numbers, scale)
        return @page.unknown if numbers.include?(nil)

        growth = heading.start_with?("+")
        return growth ? signed(numbers.sum) : count(numbers.sum) unless scale && field.end_with?("bytes")

        growth ? scale.signed(numbers.sum) : scale.text(numbers.sum)
      end

      # @param ranked [Array<Array(Numeric, Numeric)>] the values by which rows are sorted, with their errors
      # @param noun [String] what the rows are
      # @return [String, nil] a sentence if the order of the first rows may be chance
      def tie(ranked, noun)
        (most, error), *others = ranked
        tied = others.take_while { |value, its| most - value < 2 * Math.hypot(error, its) }.size
        return if tied.zero?

        @page.wrapped("The first #{tied + 1} #{noun} differ by less than two standard " \
                      "errors: their order may be chance, until more samples tell them apart.")
      end

      # A cell in a column of MiB.
      def cell(bytes) = bytes ? mebibytes(bytes) : @page.unknown

      def counted_cell(number) = number ? count(number) : @page.unknown

      # @param bytes [Range<Integer>, nil]
      def range_cell(bytes) = bytes ? mebibyte_range(bytes) : @page.unknown
    end

    # A page with lists, of which only the first rows are shown; the others are summed up.
    class ListPage < ReadingPage
      # How many rows of a list are shown by default.
      ROWS = 20

      # @param limit [Integer] rows of a list that are shown
      # @param display [Hash{Symbol => Object}] as for ReadingPage
      def initialize(reading, limit: self.class::ROWS, **display)
        super(reading, **display)
        @limit = limit
      end

      private

      # @return [Array<Array(Object, Array<Object>)>] each of the first rows, and what all others are called; each with
      #   the rows that its numbers sum up
      def summed(rows, others)
        rest = rows.drop(@limit)
        [*rows.first(@limit).map { |row| [row, [row]] }, *([[counted(rest.size, others), rest]] if rest.any?)]
      end
    end
  end
end
