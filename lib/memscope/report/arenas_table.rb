# frozen_string_literal: true

require_relative "columns"
require_relative "reading_page"

module Memscope
  class Report
    # Arenas, one a line. Under jemalloc also how long each keeps unused pages,
    # and the mutexes that were waited for most.
    class ArenasTable < ReadingPage
      JEMALLOC = { "allocated" => :allocated_bytes, "active" => :active_bytes, "dirty" => :dirty_bytes,
                   "muzzy" => :muzzy_bytes, "retained" => :retained_bytes, "metadata" => :metadata_bytes,
                   "caches" => :tcache_bytes }.freeze
      GLIBC = { "system" => :system_bytes, "at most" => :system_max_bytes, "allocated" => :allocated_bytes,
                "free" => :free_bytes, "fast" => :fast_bytes }.freeze
      # How many of the mutexes that were waited for are told.
      MUTEXES = 3
      private_constant :JEMALLOC, :GLIBC, :MUTEXES

      private

      def sections = @reading.known? ? [table, decay, waits] : []

      def explained = [:arenas]

      def table
        jemalloc = @reading.allocator == :jemalloc
        shown = jemalloc ? JEMALLOC : GLIBC
        headings = ["arena", jemalloc ? "threads" : "heaps", *shown.keys, *("blocks" unless jemalloc)]
        rows = [*@reading, @reading.merged].map do |arena|
          [name(arena), counted_cell(jemalloc ? arena.threads : arena.heaps),
           *shown.values.map { |field| cell(arena.public_send(field)) },
           *(counted_cell(arena.free_blocks) unless jemalloc)]
        end
        heading, *lines = Columns.new(headings, rows).lines
        [heading, unit(heading, shown.keys), *lines, *mmapped]
      end

      # "MiB" under each heading of bytes, where it ends.
      def unit(heading, names)
        ends = names.map { |name| heading.index(/(?<= )#{name}(?= |\z)/) + name.size }
        ends.each_with_object(+"") { |column, line| line << "MiB".rjust(column - line.size) }
      end

      def name(arena)
        return "all" unless arena.index

        @reading.allocator == :glibc && arena.index.zero? ? "main" : "#{'huge ' if arena.huge?}#{arena.index}"
      end

      # Blocks that belong to no arena.
      def mmapped
        return [] unless @reading.mmapped_blocks

        ["", "  beside them #{size(@reading.mmapped_bytes)} in #{counted(@reading.mmapped_blocks, 'blocks')} " \
             "with a mapping of their own"]
      end

      # "dirty pages stay 10 s, muzzy pages 0 s: in all arenas".
      def decay
        return [] unless @reading.allocator == :jemalloc

        groups = @reading.group_by { |arena| [arena.dirty_decay_ms, arena.muzzy_decay_ms] }
        groups.map do |(dirty, muzzy), arenas|
          where = groups.size == 1 ? "all arenas" : counted_indices(arenas)
          @page.wrapped("unused pages stay dirty for #{time(dirty)}, then muzzy for #{time(muzzy)}: #{where}")
        end
      end

      def counted_indices(arenas)
        "#{arenas.one? ? 'arena' : 'arenas'} #{arenas.map(&:index).join(', ')}"
      end

      def time(milliseconds)
        return "a time that is not known" unless milliseconds
        return "ever" if milliseconds.negative?

        (milliseconds % 1000).zero? ? "#{count(milliseconds / 1000)} s" : "#{count(milliseconds)} ms"
      end

      def waits
        waited = @reading.flat_map { |arena| (arena.mutexes || {}).map { |name, counts| [arena.index, name, counts] } }
        waited = waited.select { |_index, _name, counts| counts[:waits].positive? }
                       .max_by(MUTEXES) { |_index, _name, counts| counts[:wait_ns] }
        waited.map do |index, name, counts|
          @page.wrapped("threads waited for mutex #{name} of arena #{index} #{counted(counts[:waits], 'times')}, " \
                        "#{milliseconds(counts[:wait_ns] / 1000)} together")
        end
      end
    end
  end
end
