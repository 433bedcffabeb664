# frozen_string_literal: true

require_relative "columns"
require_relative "reading_page"

module Memscope
  class Report
    # Size classes that hold anything, one a line: what is in use, and what is free in slabs.
    class SizeClassesTable < ReadingPage
      HEADINGS = ["bytes", "in use", "MiB in use", "slabs", "partly", "used %", "MiB slack", "allocs"].freeze
      private_constant :HEADINGS

      private

      def sections
        return [] unless @reading.known?

        held = @reading.reject { |size_class| size_class.in_use_bytes.zero? && size_class.slack_bytes.zero? }
        [[*of_arena, *Columns.new(HEADINGS, [*held.map { |size_class| row(size_class) }, sum(held)]).lines]]
      end

      def explained = [:classes]

      def of_arena = @reading.arena ? ["  of arena #{@reading.arena}"] : []

      def row(size_class)
        [count(size_class.size_bytes), count(size_class.regions_in_use), mebibytes(size_class.in_use_bytes),
         *slabs(size_class), counter(size_class.allocations)]
      end

      # A large class has none.
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

      # Of allocations there may be thousands of millions: the table stays within the page.
      def counter(number) = number < 100_000_000 ? count(number) : "#{count(number / 1_000_000)} M"

      def percent(part, whole) = whole.positive? ? format("%.0f", 100 * part.fdiv(whole)) : ""
    end
  end
end
