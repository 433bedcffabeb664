# frozen_string_literal: true

module Memscope
  module Report
    # The common base of the pages about heap graphs: paths with their bytes, and lists.
    class HeapPage < ReadingPage
      # Columns before a path.
      MARGIN = 11
      # The fields whose reasons say what a dump lacks.
      LACKING = %i[garbage_count new_count].freeze
      private_constant :MARGIN, :LACKING

      # Takes the same arguments as ReadingPage#initialize.
      def initialize(reading, unicode: true, **display)
        @unicode = unicode
        super
      end

      private

      def reasons = @reading.known? ? sentences(%i[names target_count reachable_count retained] + LACKING) : super

      def path_lines(bytes, path)
        count = " (#{count(path.count)} alike)" if path.count > 1
        wrapped(bytes, "#{path.to_s(unicode: @unicode)}#{holding(path)}#{count}")
      end

      def holding(one) = (", holding #{count(one.held_count)} #{one.held_class}" if one.held_class)

      def wrapped(bytes, text)
        lines = @page.wrapped(text, indent: " " * MARGIN, hanging: 2).lines(chomp: true)
        ["#{mebibytes(bytes).rjust(MARGIN - 2)}  #{lines.shift.lstrip}", *lines]
      end

      # Lines under a heading, if there are any.
      def under(heading, lines) = ([@page.highlighted(heading), *lines] if lines.any?)

      def listed(heading, rows)
        under(heading, rows.map { |row| @page.cut(row.join("  ").delete_prefix("  ").rstrip, @page.width) })
      end

      def footer = @page.wrapped(cost)

      # What a dump lacks comes first: the rest is judged without it.
      def lacking = @reading.reasons.values_at(*LACKING).compact.first(1).map { |why| sentence(why) }
    end

    # The objects of a later heap dump that are not in an earlier one: what holds them, and their classes and sites.
    class HeapGrowthPage < HeapPage
      private

      def sections = @reading.known? ? [*lacking, totals, paths, classes, sites] : []

      def totals
        garbage = "; garbage: #{counted(@reading.new_garbage_count, 'objects')}, #{size(@reading.new_garbage_bytes)}"
        @page.wrapped("new: #{counted(@reading.new_count, 'objects')}, #{size(@reading.new_bytes)}#{garbage}; in all " \
                      "#{signed(@reading.total_count)} objects, #{signed_mebibytes(@reading.total_bytes)} MiB")
      end

      def paths
        under("      MiB  what holds the new objects",
              @reading.paths.flat_map { |path| path_lines(path.accumulated_bytes, path) })
      end

      def classes
        rows = @reading.classes.map do |row|
          [mebibytes(row.new_bytes).rjust(9), count(row.new_count).rjust(11), signed_mebibytes(row.bytes).rjust(8),
           signed(row.count).rjust(11), row.name]
        end
        listed("new MiB  new objects      +MiB     +objects  class", rows)
      end

      def sites
        rows = @reading.sites.map do |row|
          [mebibytes(row.new_bytes).rjust(9), count(row.new_count).rjust(11), row.name]
        end
        listed("new MiB  new objects  allocated at", rows)
      end

      # A dump does not say which process it is from.
      def title = @page.joined(["memscope #{@reading.memscope}", "dumps #{@reading.sources.join(', ')}"])
    end

    # A heap graph: what is reachable and what is garbage; where memory has accumulated, or the paths to objects of one
    # class; and what classes and objects retain.
    class HeapGraphPage < HeapPage
      # How many rows are shown of garbage by class, and of duplicate Strings.
      FEW = 5
      private_constant :FEW

      private

      def sections = @reading.known? ? [*lacking, totals, paths, retained, sites, dominators, garbage, strings] : []

      # A dump without roots does not say what is reachable.
      def totals
        reading = @reading
        place = reading.source && reading.roots.empty? ? "in the dump" : "reachable"
        @page.wrapped("#{place}: #{objects(reading.reachable_count, reading.reachable_bytes)}; " \
                      "garbage: #{objects(reading.garbage_count, reading.garbage_bytes)}")
      end

      def objects(number, bytes) = number ? "#{counted(number, 'objects')}, #{size(bytes)}" : "unknown"

      def paths
        return @page.wrapped("no path leads to #{@reading.paths_to}: #{unreached}") if none?

        under("      MiB  #{@reading.paths_to ? sought : 'where memory has accumulated'}",
              @reading.paths.flat_map { |path| path_lines(path.accumulated_bytes || path.retained_bytes, path) })
      end

      def none? = @reading.paths_to && @reading.target_count.to_i.zero?

      def unreached
        @reading.reasons[:target_count] || "#{counted(@reading.unreachable_target_count, 'instances')} are garbage"
      end

      def sought
        shown = ", the first #{@reading.paths.size} of them" if @reading.path_count > @reading.paths.size
        "paths to #{@reading.paths_to} (#{counted(@reading.target_count, 'objects')}): " \
          "#{counted(@reading.path_count, 'kinds')}#{shown}"
      end

      def retained
        rows = @reading.retained.map do |row|
          [mebibytes(row.retained_bytes).rjust(12), mebibytes(row.bytes).rjust(9), count(row.count).rjust(12), row.name]
        end
        note = "Objects retain what would be freed without them. What one class retains may be part of what another " \
               "retains, so do not sum the rows."
        [*listed("retained MiB  own MiB     objects  class", rows), *(@page.wrapped(note) if rows.any?)]
      end

      def sites
        rows = @reading.sites.to_a.map do |row|
          [mebibytes(row.bytes).rjust(9), count(row.count).rjust(11), row.name]
        end
        listed("    MiB      objects  allocated at", rows)
      end

      def dominators
        under("      MiB  retained by one object", @reading.dominators.flat_map do |one|
          wrapped(one.retained_bytes, "#{one.path&.to_s(unicode: @unicode) || one.name}#{holding(one)}")
        end)
      end

      def garbage
        rows = @reading.garbage.first(FEW).map do |row|
          [" " * 12, mebibytes(row.bytes).rjust(9), count(row.count).rjust(12), row.name]
        end
        listed("                  MiB     objects  class of garbage", rows)
      end

      def strings
        found = @reading.strings or return
        rows = found.duplicates.first(FEW).map do |row|
          [" " * 12, mebibytes(row.saved_bytes).rjust(9), count(row.count).rjust(12),
           "#{row.name} of #{count(row.length)} B"]
        end
        [*listed("                  MiB     objects  the same String", rows),
         @page.wrapped("#{count(found.duplicate_count)} of #{counted(found.count, 'Strings')} are duplicates of " \
                       "others; the duplicates take #{size(found.saved_bytes)}")]
      end

      def cost
        return super unless @reading.pause_ms

        "#{super} in a child; the child used #{size(@reading.child_bytes)} of its own, and its fork took " \
          "#{milliseconds(@reading.pause_ms * 1000)}"
      end

      # A dump does not say which process it is from.
      def title
        return super unless @reading.source

        @page.joined(["memscope #{@reading.memscope}", "dump #{@reading.source}"])
      end
    end
  end
end
