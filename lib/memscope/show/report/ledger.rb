# frozen_string_literal: true

module Memscope
  module Report
    # A ledger, the first screen: the two numbers that disagree, and the rows that explain why, as a tree with MiB,
    # percent of RSS, and details.
    #
    # "Ruby says" is the bytes of live slots and, with `objects: true`, also the bytes that live objects report holding
    # through malloc.
    class LedgerPage < ReadingPage
      SCANS = { pagemap_scan: "kernel scan", pagemap: "pagemap", smaps: "smaps" }.freeze
      HEADINGS = ["MiB".rjust(7), "of RSS".rjust(7), "shared".rjust(9)].freeze
      # The columns of a label, if details follow it.
      LABEL = 20
      # A bound on garbage of more than this part of the RSS is useless.
      WIDE = 4

      def initialize(ledger, **display)
        super
        @sum = ledger.rows.sum(&:bytes)
        @sharing = ledger.rows.any?(&:shared_bytes)
      end

      def self.of_collection(collected)
        returned = collected.returned_bytes
        moved = { -1 => :rss_rose, 0 => :rss_stayed, 1 => :rss_fell }[returned <=> 0] if returned
        moved &&= text(moved, bytes: Quantity.size(returned.abs))
        unshared = collected.unshared_bytes.to_i
        lost = text(:unshared, bytes: Quantity.size(unshared)) if unshared >= MEBIBYTE / 20
        text(:collected, time: Quantity.milliseconds(collected.pause_us), moved: moved, lost: lost)
      end

      private

      def title = @page.title(@reading)

      def sections = [summary, (table if @reading.rss_bytes), [*holders, *garbage], checks]

      def summary
        return ["  The kernel says  unknown; see the reasons below"] unless @reading.rss_bytes

        kernel = summary_line("The kernel says", @reading.rss_bytes, "resident")
        ruby = @reading.ruby_bytes
        return [kernel, "  Ruby says        unknown; RSS by owner:"] unless ruby

        held = @reading.held_by_objects_bytes
        means = held ? slots_and(held, ruby - held) : "in live slots"
        # Blocks count in full, although pages of them may never have been written to, as in a String's unused capacity.
        where = text(ruby > @reading.rss_bytes ? :not_resident : :elsewhere)
        [kernel, summary_line("Ruby says", ruby, means),
         summary_line("The difference", (@reading.rss_bytes - ruby).abs, where)]
      end

      # What objects report beyond malloc's memory in use, such as mapped files, is not held through malloc.
      def slots_and(held, slots)
        beyond = malloc[:in_use_bytes]&.<(held)
        text(beyond ? :slots_and_reported : :slots_and_held, slots: mebibytes(slots), held: mebibytes(held))
      end

      def summary_line(name, bytes, meaning)
        "  #{name.ljust(16)}#{mebibytes(bytes).rjust(10)} MiB   #{meaning}"[0, @page.width]
      end

      def table
        headings = HEADINGS.first(@sharing ? 3 : 2)
        lines = [*@reading.rows.filter(&:visible?).flat_map { |row| lines_of(row) },
                 [numbers(@sum, percent(@sum), total(@reading.rows.map(&:shared_bytes))), closing, []]]
        room = @page.room([headings, *lines.map(&:first)])
        @page.listing([*headings, ""], lines.map { |numbers, *text| [*numbers, fitting(*text, room)] })
      end

      def lines_of(row)
        below = @page.branches(visible_children(row)) { |child| visible_children(child) }
        [[numbers(row.bytes, percent(row.bytes), row.shared_bytes), row.label, RowItems.of(row)],
         *below.map do |branches, child|
           [numbers(child.bytes, "", child.shared_bytes), " #{branches}#{child.label}", RowItems.of(child)]
         end]
      end

      def visible_children(row) = row.children.filter(&:visible?)

      # With shared memory if the ledger was read with `shared: true`.
      def numbers(bytes, percent, shared) = [mebibytes(bytes), percent, *(cell(shared) if @sharing)]

      # As many items as fit in the column of details. If not even one fits there, as many as fit right after the label.
      def fitting(label, items, room)
        choices = [label.ljust(LABEL), label].flat_map do |text|
          items.size.downto(1).map { |number| "#{text}  #{items.first(number).join(', ')}" }
        end
        choices.find { |text| text.length <= room } || label
      end

      def percent(bytes) = @reading.rss_bytes.zero? ? "" : format("%.1f %%", 100.0 * bytes / @reading.rss_bytes)

      def closing
        difference = @sum - @reading.rss_bytes
        return "= RSS of this reading, to the byte" if difference.zero?

        "the sum; RSS of this reading is #{exact(difference.abs)} #{difference.positive? ? 'less' : 'more'}"
      end

      # How much of the memory allocated through malloc is held by Ruby objects, if the rest is known.
      def holders
        names = %i[in_use_bytes held_by_objects_bytes untracked_bytes jit_metadata_bytes]
        allocated, held, untracked, jit = malloc.values_at(*names).map { |bytes| bytes && size(bytes) }
        return unless untracked

        say(jit ? :holders_and_jit : :holders, allocated: allocated, held: held, jit: jit, untracked: untracked)
      end

      def malloc = @reading.row(:malloc)&.detail || {}

      # How much of the memory in use may be garbage; before that, if garbage was collected, the effect of the
      # collection.
      def garbage
        collected = self.class.of_collection(@reading.collected) if @reading.collected
        first = text(:collects_first) unless collected
        [collected, garbage_bound(first)].compact.map { |text| @page.wrapped(text) }
      end

      def garbage_bound(first)
        known, most = [@reading.garbage_bytes, @reading.garbage_max_bytes].map { |bytes| bytes if bytes&.positive? }
        return text(:garbage, known: size(known), beyond: beyond(known, most), first: first) if known

        return if most.nil? || mebibytes(most) == "0.0"

        wide = first && (malloc[:in_use_bytes].nil? || most > @reading.rss_bytes / WIDE)
        text(wide ? :garbage_untold : :garbage_at_most, most: size(most), first: first)
      end

      def beyond(known, most)
        text(:garbage_beyond, most: size(most)) if most.to_i > known && size(most) != size(known)
      end

      def checks
        checked.reject { |row| row.check.verified? }.map do |row|
          check = row.check
          say(:unverified, row: row.label, actual: exact(check.actual_bytes), source: check.source,
                           expected: exact(check.expected_bytes), difference: signed(check.difference_bytes))
        end
      end

      def checked = @reading.each_path.filter_map { |_path, row| row if row.check }

      def reasons
        allocator = @reading.allocator
        unavailable({ **(allocator.proved? ? {} : { malloc: allocator.proof }), **@reading.reasons })
      end

      def footer = @page.joined([cost, against_statm, agreement].compact, indent: "  ")

      # statm is read before and after the scan. The difference is 0 if the scan's RSS lies between the two values.
      def against_statm
        bounds = [@reading.statm_before_bytes, @reading.statm_after_bytes].compact
        return if bounds.empty? || @reading.rss_bytes.nil?

        difference = @reading.rss_bytes - @reading.rss_bytes.clamp(*bounds.minmax)
        "#{SCANS.fetch(@reading.source)} vs. statm: #{signed(difference)} B"
      end

      def agreement
        passed = checked.map { |row| row.check.verified? }
        "#{passed.count(true)} of #{counted(passed.size, 'checks')} passed" if passed.any?
      end
    end

    # The details of a ledger's row, in addition to its bytes: "45,649 blocks", "text 2.8 MiB".
    module RowItems
      # Shown elsewhere in the report, or in the JSON only.
      HIDDEN = %i[c_library_blocks c_library_bytes c_library_heaps chunk_bytes in_use_bytes held_absent_bytes
                  held_by_objects_bytes untracked_bytes trimmable_private_bytes].freeze

      module_function

      def of(row)
        unverified = "unverified" if row.check && !row.check.verified?
        detail = row.detail.except(*HIDDEN)
        detail.delete(:text_bytes) if row.id == :others # files of any kind, code or not
        trimmable = detail.delete(:trimmable_bytes)
        # Shown on leaves, which hold the trimmable memory. The detail of the row malloc has its sum.
        trim = "#{Quantity.size(trimmable)} trimmable" if row.leaf? && trimmable&.positive?
        [*unverified, *trim, *detail.filter_map { |name, value| item(name.to_s.tr("_", " "), value) }]
      end

      # A String is shown without its name, a number or a list with it. Zeros and empty values are left out.
      def item(name, value)
        case value
        when String then value unless value.empty?
        when Integer then number(name, value) unless value.zero?
        when Float then "#{name} #{value}"
        when Array then Quantity.counted(value.size, name) unless value.empty?
        when true then name
        end
      end

      def number(name, value)
        return Quantity.counted(value, name) unless name.end_with?(" bytes")

        "#{name.delete_suffix(' bytes')} #{Quantity.size(value)}"
      end
      private_class_method :item, :number
    end

    # A Diff. For two ledgers, it shows the rows as a tree, in MiB. For other readings, the numbers, one per line.
    # Unchanged numbers and rows that changed by less than 0.05 MiB are left out.
    class DiffPage < ReadingPage
      NUMBER_WIDTH = 14

      private

      def title
        @page.joined(["memscope #{@reading.memscope}", "#{@reading.of.tr('_', ' ')} of pid #{@reading.pid}",
                      "#{format('%.1f', @reading.seconds)} s later"])
      end

      def sections
        lines = @reading.of == "ledger" ? row_lines : number_lines(@reading.rows)
        [lines.empty? ? "  nothing changed" : lines]
      end

      def footer = nil

      def number_lines(rows, before = "")
        rows.flat_map do |row|
          path = "#{before}#{row.name}"
          next number_lines(row.rows, "#{path}.") unless row.rows.empty?

          next [] if row.change.nil? || row.change.zero?

          number = row.change.is_a?(Integer) ? signed(row.change) : format("%+.2f", row.change)
          ["#{number.rjust(NUMBER_WIDTH)} #{path.end_with?('_bytes') ? 'B' : ' '}  #{path}"]
        end
      end

      def row_lines
        lines = moved(@reading.part(:rows)&.rows || []).flat_map do |row|
          parts = @page.branches(moved(row.rows)) { |part| moved(part.rows) }
          [row_line(row), *parts.map { |branches, part| row_line(part, " #{branches}") }]
        end
        rss = @reading.part(:rss_bytes)
        ["MiB".rjust(NUMBER_WIDTH), *lines, *(row_line(rss, label: "= the change of RSS") if rss&.change)]
      end

      def row_line(row, before = nil, label: row.label || row.name)
        "#{signed_mebibytes(row.change).rjust(NUMBER_WIDTH)}  #{before}#{label}"
      end

      # The changes that do not print as 0.0, or that have such a change below them. Returns none if a ledger could not
      # be read.
      def moved(rows) = rows.filter { |row| row.change && (mebibytes(row.change) != "0.0" || moved(row.rows).any?) }
    end
  end
end
