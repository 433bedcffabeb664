# frozen_string_literal: true

module Memscope
  module Report
    # Rows below headings, which text and HTML have in common. The last column of a listing is text, and `long` is the
    # treatment of one that is too long for its line: :cut, :wrap, or :end (only its end is kept); :lines fit already.
    # A plain table has numbers only. `keys` are the subjects of the rows, for links.
    Table = Struct.new(:page, :headings, :rows, :long, :keys) do
      def to_a = page.lines_of(self)
    end

    # Sets text in the columns of a Display, with box-drawing characters or in plain ASCII.
    class Page
      # The width of a page, in columns, unless a terminal has another.
      WIDTH = 80
      MIN_WIDTH = 40
      MAX_WIDTH = 400
      # Maximum columns of a paragraph: longer lines are hard to read.
      PARAGRAPH = 100
      # If only the end of a text is kept, that end has at least this many columns.
      MIN_ENDING = 8
      # Select Graphic Rendition of ECMA-48, by the use of the highlight.
      HIGHLIGHTS = { heading: "1", critical: "1;31", warning: "1;33", info: "36" }.freeze
      UNICODE = { branch: "├─ ", last: "└─ ", bar: "│   ", gap: "    ", dot: " · ", unknown: "–",
                  plus_minus: "±", ellipsis: "…" }.freeze
      ASCII = { branch: "|- ", last: "`- ", bar: "|   ", gap: "    ", dot: " - ", unknown: "-",
                plus_minus: "+-", ellipsis: "..." }.freeze

      # "glibc 2.36 serves malloc (proved)"
      def self.server(allocator)
        return ReadingPage.text(:server_unknown) if allocator.name == :unknown

        name = [allocator.name, allocator.short_version].compact.join(" ")
        "#{name} serves malloc (#{'not ' unless allocator.proved?}proved)"
      end

      attr_reader :width

      def initialize(unicode:, width: WIDTH, color: false)
        @unicode = unicode
        @width = width
        @color = color
        @glyphs = unicode ? UNICODE : ASCII
        freeze
      end

      def unicode? = @unicode

      def unknown = @glyphs[:unknown]

      def plus_minus = @glyphs[:plus_minus]

      # Bold or in colour on a terminal. The text is one line, already padded to its final width.
      def highlighted(text, as = :heading) = @color && !text.empty? ? "\e[#{HIGHLIGHTS.fetch(as)}m#{text}\e[0m" : text

      # Puts a dot between the parts of a line. Parts that do not fit start a new line.
      def joined(parts, indent: "")
        lines = parts.each_with_object([]) do |part, filled|
          extended = filled.last && "#{filled.last}#{@glyphs[:dot]}#{part}"
          extended && extended.length <= @width ? filled[-1] = extended : filled << "#{indent}#{part}"
        end
        lines.join("\n")
      end

      # Wraps words to the page, each line indented, lines after the first by `hanging` more.
      def wrapped(text, indent: "  ", hanging: 2)
        width = [@width, PARAGRAPH].min - indent.length - hanging
        lines = text.tr("\n", " ").scan(/\S.{0,#{width - 1}}(?=\s|\z)|\S{1,#{width}}/)
        "#{indent}#{lines.join("\n#{indent}#{' ' * hanging}")}"
      end

      def title(ledger)
        joined(["memscope #{ledger.memscope}", "ruby #{ledger.ruby}", Page.server(ledger.allocator),
                "pid #{ledger.pid}"])
      end

      # A plain table. Each row is as long as the headings. `keys` has an element for each row.
      def table(headings, rows, keys: nil) = Table.new(self, headings, rows, nil, keys)

      # A table whose last column is text. The other columns are narrow. `long` and `keys` are as in Table.
      def listing(headings, rows, long: :cut, keys: nil) = Table.new(self, headings, rows, long, keys)

      # Columns right-aligned under their headings, each after two blanks, or one if two would be too wide for the
      # page. If even one is too wide, the columns that do not fit follow in further tables, each of which repeats the
      # first column.
      def lines_of(table)
        columns = [table.headings, *table.rows].transpose
        return listed(*columns, table.long) if table.long

        lots(aligned(columns)).flat_map.with_index do |lot, index|
          heading, *lines = lot.transpose.map { |cells| cells.join.rstrip }
          [*("" if index.positive?), highlighted(heading), *lines]
        end
      end

      # The columns that a listing leaves for its last column, beside these numbers.
      def room(numbers) = @width - aligned(numbers.transpose).sum { |column| column.first.length } - 2

      # The nodes of a tree in preorder, each with the branches to draw before it. The block returns the nodes below
      # one.
      def branches(nodes, before = "", &below)
        nodes.each_with_index.flat_map do |node, index|
          last = index == nodes.length - 1
          [["#{before}#{@glyphs[last ? :last : :branch]}", node],
           *branches(yield(node), "#{before}#{@glyphs[last ? :gap : :bar]}", &below)]
        end
      end

      def encoded(text) = @unicode ? text : text.encode("US-ASCII", invalid: :replace, undef: :replace, replace: "?")

      # The end of a long text, since that is most specific. A path is cut between directories if that leaves enough
      # of it.
      def ending(text, columns)
        columns = [columns, MIN_ENDING].max
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
    # nil. Sections without lines are left out.
    class ReadingPage
      include Quantity

      WORDS = Words.beside(__FILE__)
      # What a page of this class takes besides its display, with defaults: its instance variables.
      VIEW = {}.freeze

      def self.text(name, **figures) = WORDS.fill(name, figures)

      def initialize(reading, unicode: true, **options)
        @reading = reading
        view, display = options.partition { |name, _value| self.class::VIEW.key?(name) }.map(&:to_h)
        { **self.class::VIEW, **view }.each { |name, value| instance_variable_set(:"@#{name}", value) }
        @page = Page.new(unicode: unicode, **display)
      end

      def to_s
        lines = [[*title].map { |line| @page.highlighted(line) }, *sections, reasons, footer].map do |section|
          [*section].flat_map { |part| [*part] }
        end
        @page.encoded(lines.reject(&:empty?).map { |some| "#{some.join("\n")}\n" }.join("\n"))
      end

      # Tables and paragraphs, for HTML, where their blanks mean nothing.
      def parts = sections.flatten.compact

      # The same as text, without title and reasons: for a page that has them itself.
      def lines = parts.flat_map { |part| [*part] }

      private

      def text(name, **figures) = self.class.text(name, **figures)
      def say(name, **figures) = @page.wrapped(text(name, **figures))

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
        text(:cost, wall: milliseconds(cost.wall_us), gvl: milliseconds(cost.gvl_us))
      end

      def explained(reasons, indent: "  ") = reasons.map { |id, why| @page.wrapped("#{id}: #{why}", indent: indent) }

      # Commands to paste, or nil without any.
      def next_step(commands) = commands && ["  next:", *commands.lines(chomp: true).map { |line| "    #{line}" }]

      # The same under a heading, with one sentence for all the numbers that have the same reason; nil without reasons.
      def unavailable(reasons)
        return if reasons.empty?

        same = reasons.group_by(&:last).to_h { |why, pairs| [pairs.map(&:first).join(", "), why] }
        ["  #{text(:unavailable)}", *explained(same, indent: "    ")]
      end

      # A listing of the sums of rows, one line for each group of them. `columns` has the field below each heading: "%s"
      # in the heading is the unit of bytes, "+" stands for growth. `groups` are names with their rows; those without
      # rows are left out. Without a `scale`, bytes are exact.
      def sums(columns, name, groups, scale = nil, **listing)
        groups = groups.reject { |_name, rows| rows.empty? }
        headings = columns.map { |heading, _field| heading.sub("%s", scale&.unit.to_s) }
        lines = groups.map do |group, rows|
          [*columns.map { |heading, field| sum_cell(heading, field, rows, scale) }, group]
        end
        @page.listing([*headings, name], lines, **listing)
      end

      def value(row, field) = row.public_send(field)

      def sum_cell(heading, field, rows, scale)
        sum = total(rows.map { |row| value(row, field) }) or return @page.unknown
        growth = heading.start_with?("+")
        return growth ? signed(sum) : count(sum) unless scale && field.end_with?("bytes")

        growth ? scale.signed(sum) : scale.text(sum)
      end

      # A sentence if the order of the first rows may be chance. `ranked` has the values by which rows are sorted, with
      # their errors.
      def tie(ranked, noun)
        (most, error), *others = ranked
        tied = others.take_while { |value, its| most - value < 2 * Math.hypot(error, its) }.size
        say(:tie, number: tied + 1, noun: noun) unless tied.zero?
      end

      def cell(bytes) = bytes ? mebibytes(bytes) : @page.unknown

      # The cells of some fields of a record: bytes in MiB, other numbers counted.
      def cells_of(record, fields)
        fields.map do |field|
          number = record.public_send(field)
          field.end_with?("bytes") ? cell(number) : counted_cell(number)
        end
      end

      def counted_cell(number) = number ? count(number) : @page.unknown

      def range_cell(bytes) = bytes ? mebibyte_range(bytes) : @page.unknown
    end

    # A page with lists, of which only the first rows are shown. The others are summed up.
    class ListPage < ReadingPage
      VIEW = { limit: 20 }.freeze

      private

      # Each of the first rows, and a name for all others, with the rows that its numbers sum up.
      def summed(rows, others)
        rest = rows.drop(@limit)
        [*rows.first(@limit).map { |row| [row, [row]] }, *([[counted(rest.size, others), rest]] if rest.any?)]
      end
    end
  end
end
