# frozen_string_literal: true

module Memscope
  class Diff < Reading
    # Pairs the numbers of two readings of one class, into bodies of Change.
    #
    # @api private
    class Comparison
      # @param earlier [Reading]
      # @param later [Reading]
      def initialize(earlier, later)
        @earlier = earlier
        @later = later
      end

      # @return [Array<Hash>]
      def changes
        @later.class.own_fields.filter_map do |field|
          values = [@earlier, @later].map(&field.reader)
          Field::NUMBERS.include?(field.type) ? number(field.name, *values, field) : any(field.name, *values, field)
        end
      end

      private

      # nil where there is nothing to subtract.
      def any(id, from, to, field)
        case [from, to].compact.first
        when Numeric then number(id, from, to, field)
        when Hash then group(id, from || {}, to || {}, field)
        when Array then list(id, from || [], to || [], field)
        else group(id, from.to_h, to.to_h, field) if field.nested? && field.type.respond_to?(:identity)
        end
      end

      def number(id, from, to, field)
        change(id, from: from, to: to, counter: counter?(field.counters, id))
      end

      # A Hash says by its keys which of its numbers are counters.
      def counter?(counters, id) = counters.is_a?(Array) ? counters.include?(id) : counters

      def group(id, from, to, field)
        changes = (to.keys | from.keys).filter_map { |key| any(key, from[key], to[key], field) }
        change(id, changes: changes) unless changes.empty?
      end

      # Of the lists only rows and records that have an identity hold numbers that can be paired.
      def list(id, from, to, field)
        item = to.first || from.first
        return change(id, changes: rows(from, to)) if item.is_a?(Ledger::Row)
        return unless item.class.respond_to?(:identity)

        identity = item.class.identity
        group(id, *[from, to].map { |items| items.to_h { |one| [one.public_send(identity), one.to_h] } }, field)
      end

      # A row that is not there holds nothing, so it counts as 0.
      def rows(from, to)
        pairs = [from, to].map { |rows| rows.to_h { |row| [row.id, row] } }
        ids = pairs.last.keys | pairs.first.keys
        changes = ids.map { |id| row(*pairs.map { |pair| pair[id] }) }
        changes.sort_by.with_index { |change, index| [-(change[:to] - change[:from]).abs, index] }
      end

      def row(from, to)
        known = to || from
        bytes, children = [from, to].map { |row| row ? [row.bytes, row.children] : [0, []] }.transpose
        change(known.id, label: known.label, from: bytes.first, to: bytes.last, changes: rows(*children))
      end

      def change(id, label: id.to_s, from: nil, to: nil, counter: false, changes: [])
        { id: id, label: label, from: from, to: to, counter: counter, changes: changes }
      end
    end
  end
end
