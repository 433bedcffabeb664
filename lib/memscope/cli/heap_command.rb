# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope heap` lists the retainers of a process's objects. `memscope heap DUMP` does so for a file that
    # ObjectSpace.dump_all wrote. `memscope heap DUMP DUMP` lists the growth from the first such file to the second.
    # `memscope heap -- COMMAND` lists the retainers of a Ruby program's objects when it ends.
    class HeapCommand < ReportCommand
      declare limits: { top: Limit.of(HeapGraph::TOP) }, most: 3, program: [:every], process: [:since],
              exclusive: [%i[since markdown], %i[since paths_to]], defaults: { top: 10 }

      private

      def check
        super
        @dump, *@later = @operands.map { |dump| file_of(dump) }
        usage_error(:not_for_dump, option: dashed(excluded)) if @dump && excluded
      end

      def excluded = (@given.keys & [:pid, :socket, :strings, :since, *(:paths_to if @later.any?)]).first

      def note_own = @dump || super

      # With an earlier heap graph, the report is about growth, and the rows that grew come first.
      def view = @since ? { since: @since, limit: @given[:top] } : super

      def read
        @since = saved(HeapGraph, :since)
        usage_error(:since_paths) if @since&.paths_to
        reading = @dump ? of_dumps([@dump, *@later]) : ask(:heap_graph, **calls[:heap_graph], **all_rows)
        refuse_class(reading) if reading.reasons.key?(:target_count)
        [@since && @given[:json] ? reading - @since : reading]
      end

      # Growth is found among all rows, and the largest of it is shown.
      def all_rows = @since ? { top: HeapGraph::TOP.max } : {}

      def of_dumps(dumps)
        options = @given.slice(:top, :paths_to)
        reading = asking { HeapGraph.public_send(dumps.one? ? :read : :growth, *dumps, **options) }
        return reading if reading.known?

        refuse_dumps(*dumps, reading.reasons.values_at(:extension, :reachable_count, :new_count).compact.first)
      rescue SystemCallError => e
        refuse_dumps(*dumps, e.class.new.message)
      end

      def status(*readings) = @since ? FINE : super

      # No class has this name, or the class has no instances.
      def refuse_class(reading)
        given = Command.questioned(@given[:paths_to], reading.retained.map(&:name))
        usage_error("--paths-to #{given}: #{reading.reasons[:target_count]}")
      end

      def calls = { heap_graph: @given.slice(:top, :paths_to, :strings) }
    end
  end
end
