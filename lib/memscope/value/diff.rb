# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # The changes between two readings of one kind: later - earlier.
  #
  #   diff = Memscope.ledger - ledger_before
  #   diff[:rss_bytes].change              # => 4096
  #   diff.dig(:rows, :malloc).change      # => 4096
  #   (later_census - census).by(:class).first.name
  #
  # The change of a counter counts the events in between. The change of a gauge is its rise or fall.
  class Diff < Reading
    # One number, or a group of them.
    class Row < Record
      include Lookup

      # @api private
      def id = name.to_sym

      # @api private
      # @return [Row] the same numbers under another name
      def named(name) = changed(name: name)

      # @api private
      # @return [Integer, Float] the change of a part, or 0 if there is none
      def change_of(name) = part(name)&.change || 0
    end
    include Lookup

    class << self
      # @param earlier [Reading]
      # @param later [Reading]
      # @param names [Hash{Symbol => Symbol}] names of groups, by the field that lists their rows
      # @param groups [Hash{Symbol => Array<Hash>}] bodies of more rows, by the name of their group
      # @param reasons [Hash{Symbol => Object}] more reasons
      # @return [Diff] in the later reading's envelope, at no cost
      def between(earlier, later, names: {}, groups: {}, reasons: {})
        rows = changes(earlier, later, names) + groups.map { |name, parts| row(name, rows: parts) }
        doubts = { pid: ([:other_process, earlier.pid.to_s] unless same_process?(earlier, later)),
                   seconds: (:subtracted_later if earlier.at > later.at) }
        capture({ of: later.class.kind, seconds: (later.at - earlier.at).to_f, earlier_pid: earlier.pid, rows: rows,
                  cost: Cost.of(:T0), reasons: { **earlier.reasons, **later.reasons, **doubts, **reasons }.compact },
                later.envelope)
      end

      # @param earlier [Reading]
      # @param later [Reading]
      # @return [Boolean] whether both are of one process
      def same_process?(earlier, later)
        earlier.pid == later.pid && (!earlier.process || !later.process || later.process.same?(earlier.process))
      end

      # @return [Hash{Symbol => Object}] the body of a Row
      def row(name, before: nil, after: nil, rows: [], **more)
        { name: name.to_s, label: nil, before: before, after: after, change: before && after && (after - before),
          error: nil, counter: nil, rows: rows, **more }
      end

      private

      def changes(earlier, later, names)
        later.class.own_fields.filter_map do |field|
          values = [earlier, later].map(&field.reader)
          name = names.fetch(field.name, field.name)
          next list(name, field.type.first, *values) if field.type.is_a?(Array)
          next any(name, *values, field.counters) unless Field::NUMBERS.include?(field.type)

          number(name, *values, field.counters == true)
        end
      end

      def number(name, before, after, counter) = row(name, before: before, after: after, counter: counter || nil)

      # The change of any value. nil if there is nothing to subtract. `counters` are the Hash keys, at any depth, whose
      # values are counters.
      def any(name, before, after, counters)
        case known = before.nil? ? after : before
        when Numeric then number(name, before, (after if after.is_a?(Numeric)), Array(counters).include?(name))
        when Hash then group(name, *[before, after].map { |hash| Hash.try_convert(hash).to_h }, counters)
        when Record then group(name, before.to_h, after.to_h, counters_of(known.class)) if known.class.identity
        end
      end

      def group(name, before, after, counters, **more)
        rows = (after.keys | before.keys).filter_map { |key| any(key, before[key], after[key], counters) }
        row(name, rows: rows, **more) unless rows.empty?
      end

      # Only rows and records with an identity hold numbers that can be paired.
      def list(name, record, *lists)
        lists = lists.map(&:to_a)
        return paired(name, record, lists) if record.identity

        row(name, rows: nested_rows(*lists)) if record.respond_to?(:nested) && lists.any?(&:any?)
      end

      def paired(name, record, lists)
        pairs = lists.map { |items| items.to_h { |item| [item.public_send(record.identity), item] } }
        return row(name, rows: weighed(record, *pairs)) if record.respond_to?(:weight)

        group(name, *pairs.map { |items| items.transform_values(&:to_h) }, counters_of(record)) || row(name)
      end

      # A record with a weight, its main number, is one of all: one missing from a reading had nothing there, and
      # unchanged records are left out.
      def weighed(record, before, after)
        (after.keys | before.keys).map { |name| weight(record, name, before[name], after[name]) }
                                  .select { |one| one[:rows].any? { |part| part[:change]&.nonzero? } }
                                  .sort_by { |one| [-one[:change], one[:name]] }
      end

      def weight(record, name, before, after)
        weights = [before, after].map { |item| item ? item.public_send(record.weight) : 0 }
        numbers = [before || none(after), after || none(before)].map(&:to_h)
        group(name, *numbers, counters_of(record), before: weights.first, after: weights.last)
      end

      def none(item) = item.to_h.select { |_name, value| value.is_a?(Numeric) }.transform_values { 0 }

      def counters_of(record) = record.fields.flat_map { |field| field.counters == true ? field.name : field.counters }

      # Rows that have parts, such as a ledger's. One that is missing from a reading counts as 0 bytes there. A reading
      # without any row could not be made.
      def nested_rows(before, after, absent = [before, after].any?(&:empty?) ? nil : 0)
        pairs = [before, after].map { |rows| rows.to_h { |one| [one.id, one] } }
        rows = (pairs.last.keys | pairs.first.keys).map { |id| nested_row(*pairs.map { |pair| pair[id] }, absent) }
        rows.sort_by.with_index { |one, index| [-one[:change].to_i.abs, index] }
      end

      def nested_row(before, after, absent)
        known = after || before
        bytes, children = [before, after].map { |one| one ? [one.bytes, one.children] : [absent, []] }.transpose
        row(known.id, label: known.label, before: bytes.first, after: bytes.last, rows: nested_rows(*children, absent))
      end
    end

    # The changes of a census, or of a profile, by a grouping.
    #
    # @param grouping [Symbol] as `by` of the two readings takes it, or :rows for a ledger
    # @return [Array<Row>] the greatest growth first, without those that did not change
    # @raise [KeyError] naming the groups there are
    def by(grouping) = self[grouping].rows

    # @api private
    # @return [Boolean] whether both readings could be made
    def known? = rows.any? { |row| row.change || row.rows.any? }
  end
end
