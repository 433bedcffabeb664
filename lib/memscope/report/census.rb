# frozen_string_literal: true

module Memscope
  module Report
    # Objects by class or another grouping, one line for each row.
    class CensusPage < ListPage
      # Heading of the last column, which names the rows, by grouping.
      NAMES = { class: "class", type: "type", imemo: "kind", slot_size: "slot bytes", age: "age" }.freeze
      private_constant :NAMES

      # @param reading [Census, Census::Growth]
      # @param by [Symbol] as Census#by
      # @param list [Hash{Symbol => Object}] as for ListPage
      def initialize(reading, by: :class, **list)
        super(reading, **list)
        @by = by
        @own, rows = reading.by(by).partition { |row| Terms.own?(row.name) }
        @scale = Scale.of(rows.map(&:memsize_bytes))
        @rows, @rest = split(rows)
      end

      private

      # The rows to list, and the rows to sum up: classes of less than 0.05 MiB too.
      def split(rows)
        small, large = rows.partition { |row| @by == :class && @scale.tiny?(row.memsize_bytes) }
        [large.first(@limit), large.drop(@limit) + small]
      end

      def sections = @reading.known? ? [lede, table] : []

      def reasons = sentences

      def lede
        whole = "#{counted(@reading.total_count, 'objects')}: #{size(@reading.total_slot_bytes)} in slots, " \
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
      def cells(rows) = columns.values.map { |field| text(field, rows.sum(&field)) }

      def text(field, number) = field.end_with?("_bytes") ? @scale.text(number) : count(number)
    end

    # What grew between two censuses, one line for each row.
    class CensusGrowthPage < CensusPage
      private

      # How many rows are shown of objects that report no size.
      FEW = 5
      private_constant :FEW

      def sections = [*super, (unsized if @by == :class && @reading.known?)].compact

      # A context of V8, a store of certificates or an image may hold megabytes that Ruby does not know of.
      def unsized
        found = @reading.unsized.first(FEW)
        return if found.empty?

        rows = found.map { |row| [signed(row.count), count(row.later_count), name(row)] }
        [@page.listing(["+objects", "objects", "class of C code that reports no size"], rows, keys: keys(found)),
         @page.wrapped("Bytes above do not include what these hold. > memscope heap --paths-to CLASS")]
      end

      # A growth is computed from two readings, so it has no cost of its own.
      def footer = nil

      def lede
        ["  in #{format('%.1f', @reading.seconds)} s: #{signed(@reading.total_count)} objects, " \
         "#{signed_mebibytes(@reading.total_slot_bytes)} MiB in slots, " \
         "#{signed_mebibytes(@reading.total_memsize_bytes)} MiB in all"]
      end

      def columns
        { "+#{@scale.unit}" => :memsize_bytes, "in slots" => :slot_bytes, "+objects" => :count, "+old" => :old_count,
          "objects" => :later_count }
      end

      def text(field, number)
        return super if field == :later_count

        field.end_with?("_bytes") ? @scale.signed(number) : signed(number)
      end
    end
  end
end
