# frozen_string_literal: true

module Memscope
  module Report
    # The common base of the pages on malloc: the title, and the choice of reasons.
    class MallocPage < ReadingPage
      private

      def subject
        malloc = @reading.allocator
        [malloc == :unknown ? "what serves malloc is unknown" : "#{malloc} serves malloc", "pid #{@reading.pid}",
         *("epoch #{@reading.epoch}" if @reading.epoch)]
      end

      def reasons = explained(@reading.reasons.slice(:epoch, :extension, *explains))
    end

    # Arenas, one a line. Under jemalloc also how long each keeps unused pages.
    class ArenasPage < MallocPage
      private

      def explains = %i[arenas]

      def sections = @reading.known? && Arena::COLUMNS.key?(@reading.allocator) ? [table, mmapped, decay] : []

      def jemalloc? = @reading.allocator == :jemalloc

      def table
        shown = Arena::COLUMNS.fetch(@reading.allocator)
        rows = [*@reading, @reading.merged].map { |arena| [@reading.label(arena), *cells_of(arena, shown.values)] }
        @page.table(["MiB", *shown.keys], rows)
      end

      # Blocks outside all arenas.
      def mmapped
        blocks = @reading.mmapped_blocks or return
        "  #{text(:mmapped, bytes: size(@reading.mmapped_bytes), blocks: counted(blocks, 'blocks'))}"
      end

      # "all arenas: unused pages stay dirty for 10 s, then muzzy for 0 s".
      def decay
        return unless jemalloc?

        groups = @reading.group_by { |arena| [arena.dirty_decay_ms, arena.muzzy_decay_ms] }
        groups.map do |(dirty, muzzy), arenas|
          where = groups.size == 1 ? "all arenas" : "arena#{'s' if arenas.size > 1} #{arenas.map(&:index).join(', ')}"
          say(:decay, arenas: where, dirty: time(dirty), muzzy: time(muzzy))
        end
      end

      def time(milliseconds)
        return text(:unknown_time) unless milliseconds
        return "forever" if milliseconds.negative?

        "for #{(milliseconds % 1000).zero? ? "#{count(milliseconds / 1000)} s" : "#{count(milliseconds)} ms"}"
      end
    end

    # Size classes with any memory, one per line: the memory in use, and the free memory in slabs.
    class SizeClassesPage < MallocPage
      HEADINGS = ["bytes", "in use", "MiB in use", "slabs", "partly", "used %", "MiB slack", "allocs"].freeze

      private

      def explains = %i[classes]

      def sections
        return [] unless @reading.known?

        held = @reading.reject { |size_class| size_class.in_use_bytes.zero? && size_class.slack_bytes.zero? }
        table = @page.table(HEADINGS, [*held.map { |size_class| row(size_class) }, sum(held)])
        [[*("  of arena #{@reading.arena}" if @reading.arena), table]]
      end

      def row(size_class)
        [count(size_class.size_bytes), count(size_class.regions_in_use), mebibytes(size_class.in_use_bytes),
         *slabs(size_class), counter(size_class.allocations)]
      end

      # The cells on slabs. A large class has no slabs.
      def slabs(size_class)
        return ["", "", "", ""] if size_class.kind == :large

        [count(size_class.slabs), counted_cell(size_class.partly_used_slabs),
         percent(size_class.regions_in_use, size_class.regions), mebibytes(size_class.slack_bytes)]
      end

      def sum(held)
        small = held.select { |size_class| size_class.kind == :small }
        ["all", count(held.sum(&:regions_in_use)), mebibytes(held.sum(&:in_use_bytes)), count(small.sum(&:slabs)), "",
         percent(small.sum(&:in_use_bytes), small.sum { |one| one.in_use_bytes + one.slack_bytes }),
         mebibytes(held.sum(&:slack_bytes)), counter(held.sum(&:allocations))]
      end

      # From 100 million on, the count is in millions, so that billions of allocations fit into the column.
      def counter(number) = number < 100_000_000 ? count(number) : "#{count(number / 1_000_000)} M"

      def percent(part, whole) = whole.positive? ? format("%.0f", 100 * part.fdiv(whole)) : ""
    end

    # The three ratios, each with its two sizes. Then the memory that is free but resident, by the lever that returns
    # it. SizeClassesPage has the memory that is stuck in slabs of each size.
    class FragmentationPage < MallocPage
      # By label: the field of the ratio, and the fields of its two sizes.
      RATIOS = { "RSS / resident" => %i[rss_to_resident rss_bytes resident_bytes],
                 "resident / active" => %i[resident_to_active resident_bytes active_bytes],
                 "active / allocated" => %i[active_to_allocated active_bytes allocated_bytes] }.freeze

      private

      def explains = %i[rss_bytes allocator jemalloc classes deep]

      def sections = @reading.known? ? [ratios, split] : []

      def ratios
        rows = RATIOS.filter_map do |name, (ratio, *parts)|
          value = @reading.public_send(ratio) or next
          [format("%.2f", value), "#{name}: #{parts.map { |part| size(@reading.public_send(part)) }.join(' / ')}"]
        end
        @page.listing(%w[ratio of], rows) if rows.any?
      end

      def split
        lever = @reading.allocator == :glibc ? :trim : :purge
        place = @reading.allocator == :jemalloc ? "slabs" : "pages"
        @page.listing(["MiB", text(:free)], [[cell(@reading.purgeable_bytes), text(:purgeable, lever: lever)],
                                             [cell(@reading.stuck_bytes), text(:stuck, places: place)]])
      end
    end

    # Ruby's heap by slot size: pages and slots, and how much compaction could empty. Then the occupancy of the pages.
    class RubyHeapPage < ReadingPage
      HEADINGS = ["slot", "pages", "slots", "live", "free", "live %", "MiB compactable"].freeze

      private

      def sections = @reading.pages && @reading.pages_by_tenths ? [table, tenths] : []

      def table
        @page.table(HEADINGS, [*@reading.slot_sizes.map { |size| row(count(size.slot_size), size) },
                               row("all", @reading)])
      end

      def row(name, slots)
        [name, *cells_of(slots, %i[pages slots live_slots free_slots]),
         slots.occupancy ? format("%.0f", 100 * slots.occupancy) : @page.unknown,
         [slots.compactable_min_bytes, slots.compactable_bytes].map { |bytes| cell(bytes) }.uniq.join(" to ")]
      end

      def tenths
        rows = @reading.pages_by_tenths.map.with_index do |pages, tenth|
          [count(pages), mebibytes(@reading.page_bytes&.*(pages)), "#{10 * tenth} to #{10 * (tenth + 1)} %"]
        end
        @page.listing(["pages", "MiB", "of their slots are live"], rows)
      end
    end
  end
end
