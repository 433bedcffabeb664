# frozen_string_literal: true

module Memscope
  module Report
    # Objects by class or another grouping, one line for each row.
    class CensusPage < ListPage
      # Heading of the last column, which names the rows, by grouping.
      NAMES = { class: "class", type: "type", imemo: "kind", slot_size: "slot bytes", age: "age" }.freeze
      private_constant :NAMES

      # @param reading [Census, Diff]
      # @param by [Symbol] as Census#by
      # @param list [Hash{Symbol => Object}] as for ListPage
      def initialize(reading, by: :class, **list)
        super(reading, **list)
        @by = by
        @own, rows = listed(reading).partition { |row| Terms.own?(row.name) }
        @scale = Scale.of(rows.map { |row| value(row, :memsize_bytes) })
        @rows, @rest = split(rows)
      end

      private

      def listed(reading) = reading.by(@by)

      # The rows to list, and the rows to sum up: classes of less than 0.05 MiB too.
      def split(rows)
        small, large = rows.partition { |row| @by == :class && @scale.tiny?(value(row, :memsize_bytes)) }
        [large.first(@limit), large.drop(@limit) + small]
      end

      def sections = @reading.known? ? [lede, table] : []

      def reasons = sentences

      def lede
        whole = "#{counted(@reading.total_count, 'objects')}: " \
                "#{size(@reading.total_slot_bytes)} in slots, " \
                "#{size(@reading.total_memsize_bytes)} in all"
        garbage = "garbage included; --gc (gc: true) collects it first"
        garbage = "after a garbage collection" if @reading.collected?
        ["  #{whole}", "  #{count(@reading.total_old_count)} are old; #{garbage}"]
      end

      # The field below each heading.
      def columns
        { @scale.unit => :memsize_bytes, "in slots" => :slot_bytes, "objects" => :count, "old" => :old_count }
      end

      def table
        parts = [*@rows.map { |row| [name(row), [row]] }, [counted(@rest.size, "others"), @rest],
                 ["memscope's own classes", @own]].reject { |_name, rows| rows.empty? }
        @page.listing([*columns.keys, NAMES.fetch(@by)], parts.map { |name, rows| [*cells(rows), name] },
                      keys: keys(@rows))
      end

      def name(row) = Terms.explained(row.name)

      def keys(rows) = (rows.map(&:name) if @by == :class)

      # The sums of one or more rows.
      def cells(rows) = columns.values.map { |field| text(field, rows.sum { |row| value(row, field) }) }

      def value(row, field) = row.public_send(field)

      def text(field, number) = field.end_with?("_bytes") ? @scale.text(number) : count(number)
    end

    # What grew between two censuses, one line for each row.
    class CensusGrowthPage < CensusPage
      private

      # How many rows are shown of objects that report no size.
      FEW = 5
      TOTALS = %i[total_count total_slot_bytes total_memsize_bytes].freeze
      private_constant :FEW, :TOTALS

      def sections = known? ? [lede, table, (unsized if @by == :class)].compact : []

      def listed(reading) = reading.part(@by)&.rows || []

      def known? = TOTALS.all? { |name| @reading.part(name)&.change }

      # A context of V8, a store of certificates or an image may hold megabytes that Ruby does not know of.
      def unsized
        found = Census.unsized(@reading).first(FEW)
        return if found.empty?

        rows = found.map { |row| [signed(row.change), count(row.after), name(row)] }
        [@page.listing(["+objects", "objects", "class of C code that reports no size"], rows, keys: keys(found)),
         @page.wrapped("Bytes above do not include what these hold. > memscope heap --paths-to CLASS")]
      end

      # A growth is computed from two readings, so it has no cost of its own.
      def footer = nil

      def lede
        objects, slots, all = TOTALS.map { |name| @reading[name].change }
        ["  in #{format('%.1f', @reading.seconds)} s: #{signed(objects)} objects, " \
         "#{signed_mebibytes(slots)} MiB in slots, #{signed_mebibytes(all)} MiB in all"]
      end

      def columns
        { "+#{@scale.unit}" => :memsize_bytes, "in slots" => :slot_bytes, "+objects" => :count, "+old" => :old_count,
          "objects" => :later_count }
      end

      def value(row, field) = field == :later_count ? row.part(:count)&.after.to_i : row.change_of(field)

      def text(field, number)
        return super if field == :later_count

        field.end_with?("_bytes") ? @scale.signed(number) : signed(number)
      end
    end
  end
end
