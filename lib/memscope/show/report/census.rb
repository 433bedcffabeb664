# frozen_string_literal: true

module Memscope
  module Report
    # Objects by class or another grouping, one line for each row.
    class CensusPage < ListPage
      VIEW = { **VIEW, by: :class }.freeze
      # Heading of the last column, which names the rows, by grouping.
      NAMES = { class: "class", type: "type", imemo: "kind", slot_size: "slot bytes", age: "age" }.freeze
      # The field below each heading.
      COLUMNS = { "%s" => :memsize_bytes, "in slots" => :slot_bytes, "objects" => :count, "old" => :old_count }.freeze

      private

      def listed = @reading.by(@by)

      def sections = @reading.known? ? [lede, table] : []

      def reasons = sentences

      def lede
        sizes = { objects: counted(@reading.total_count, "objects"), slots: size(@reading.total_slot_bytes),
                  bytes: size(@reading.total_memsize_bytes) }
        old = text(@reading.collected? ? :old_collected : :old, number: count(@reading.total_old_count))
        [say(@reading.private? ? :private_objects : :objects, **sizes), "  #{old}"]
      end

      # Classes of less than 0.05 MiB are among the others.
      def table
        own, rows = listed.partition { |row| Terms.own?(row.name) }
        scale = Scale.of(rows.map { |row| value(row, :memsize_bytes) })
        small, large = rows.partition { |row| @by == :class && scale.tiny?(value(row, :memsize_bytes)) }
        shown = large.first(@limit)
        rest = large.drop(@limit) + small
        sums(self.class::COLUMNS, NAMES.fetch(@by),
             [*shown.map { |row| [name(row), [row]] }, [counted(rest.size, "others"), rest],
              ["memscope's own classes", own]], scale, keys: keys(shown))
      end

      def name(row) = Terms.explained(row.name)

      def keys(rows) = (rows.map(&:name) if @by == :class)
    end

    # The growth between two censuses, one line for each row.
    class CensusGrowthPage < CensusPage
      # The field below each heading.
      COLUMNS = { "+%s" => :memsize_bytes, "+in slots" => :slot_bytes, "+objects" => :count,
                  "+old" => :old_count, "objects" => :later_count }.freeze
      MAX_UNSIZED_ROWS = 5
      TOTALS = %i[total_count total_slot_bytes total_memsize_bytes].freeze

      private

      def sections = known? ? [lede, table, (unsized if @by == :class)].compact : []

      def listed = @reading.part(@by)&.rows || []

      def known? = TOTALS.all? { |name| @reading.part(name)&.change }

      # A context of V8, a store of certificates or an image may hold megabytes that Ruby does not know of.
      def unsized
        found = Census.unsized(@reading).first(MAX_UNSIZED_ROWS)
        return if found.empty?

        rows = found.map { |row| [signed(row.change), count(row.after), name(row)] }
        [@page.listing(["+objects", "objects", "class of C code that reports no size"], rows, keys: keys(found)),
         say(:unsized)]
      end

      # A growth is computed from two readings, so it has no cost of its own.
      def footer = nil

      def lede
        objects, slots, all = TOTALS.map { |name| @reading[name].change }
        "  #{text(:grown_objects, seconds: format('%.1f', @reading.seconds), objects: signed(objects),
                                  slots: signed_mebibytes(slots), all: signed_mebibytes(all))}"
      end

      def value(row, field) = field == :later_count ? row.part(:count)&.after.to_i : row.change_of(field)
    end
  end
end
