# frozen_string_literal: true

require_relative "reading"

module Memscope
  # What changed between two readings of one kind: later - earlier.
  #
  #   diff = Memscope.ledger - ledger_before
  #   diff[:rss_bytes].delta              # => 4096
  #   diff.dig(:rows, :malloc).delta      # => 4096
  #
  # The delta of a counter counts what happened in between; the delta of a gauge is its rise or fall.
  class Diff < Reading
    # One number, or a group of them.
    class Change < Record
      include Lookup

      # @return [Symbol, Integer] the name of the field, the id of the row, or the Hash key
      field :id, :id, null: false
      # @return [String] for people
      field :label, :string, null: false
      # @return [Integer, Float, nil] earlier value; nil if it is unknown, and for a group
      field :from, :number
      # @return [Integer, Float, nil] later value; nil if it is unknown, and for a group
      field :to, :number
      # @return [Boolean] whether it is a total that only grows
      field :counter?, :boolean, null: false
      # @return [Array<Change>] the changes of its parts
      field :changes, [self], null: false
      parts_of :changes

      # @return [Integer, Float, nil] later minus earlier value; nil if either is unknown
      def delta = from && to && (to - from)
    end
    include Lookup

    # @return [String] kind of both readings: "ledger", "snapshot", …
    field :of, :string, null: false
    # @return [Float] time from the earlier reading to the later
    field :seconds, :number, null: false
    # @return [Integer] process of the earlier reading; `pid` is the later one's
    field :earlier_pid, :count, null: false
    # @return [Array<Change>] one for each number, or group of numbers, in the readings
    field :changes, [Change], null: false
    parts_of :changes

    class << self
      # @param earlier [Reading]
      # @param later [Reading]
      # @return [Diff] in the later reading's envelope, at no cost
      def between(earlier, later)
        pids = "the earlier reading is of process #{earlier.pid}, the later of #{later.pid}"
        capture({ of: later.class.kind, seconds: (later.at - earlier.at).to_f, earlier_pid: earlier.pid,
                  changes: changes_between(earlier, later), cost: Cost.of(:T0),
                  reasons: { **earlier.reasons, **later.reasons, pid: (pids if earlier.pid != later.pid) }.compact },
                later.envelope)
      end

      private

      # @return [Array<Hash>] bodies of Change
      def changes_between(earlier, later)
        later.class.own_fields.filter_map do |field|
          from, to = [earlier, later].map(&field.reader)
          next any(field.name, from, to, field.counters) unless Field::NUMBERS.include?(field.type)

          change(field.name, from: from, to: to, counter: field.counters == true)
        end
      end

      # The change of any value; nil if there is nothing to subtract. `counters` are the Hash keys, at any depth, whose
      # values are counters.
      def any(id, from, to, counters)
        case known = from.nil? ? to : from
        when Numeric then change(id, from: from, to: (to if to.is_a?(Numeric)), counter: Array(counters).include?(id))
        when Hash then group(id, *[from, to].map { |hash| Hash.try_convert(hash).to_h }, counters)
        when Array then list(id, *[from, to].map { |list| Array.try_convert(list).to_a })
        when Record then group(id, from.to_h, to.to_h, counters_of(known.class)) if known.class.respond_to?(:identity)
        end
      end

      def group(id, from, to, counters)
        changes = (to.keys | from.keys).filter_map { |key| any(key, from[key], to[key], counters) }
        change(id, changes: changes) unless changes.empty?
      end

      # Only rows and records with an identity hold numbers that can be paired.
      def list(id, from, to)
        record = (to.first || from.first).class
        return change(id, changes: rows(from, to)) if record == Ledger::Row
        return unless record.respond_to?(:identity)

        pairs = [from, to].map { |items| items.to_h { |item| [item.public_send(record.identity), item.to_h] } }
        group(id, *pairs, counters_of(record))
      end

      def counters_of(record) = record.fields.flat_map { |field| field.counters == true ? field.name : field.counters }

      # A row that is missing from one of the ledgers counts as 0 bytes there; a ledger without any row could not be
      # read.
      def rows(from, to, absent = [from, to].any?(&:empty?) ? nil : 0)
        pairs = [from, to].map { |rows| rows.to_h { |row| [row.id, row] } }
        ids = pairs.last.keys | pairs.first.keys
        changes = ids.map { |id| row(*pairs.map { |pair| pair[id] }, absent) }
        changes.sort_by.with_index { |change, index| [-(change[:to].to_i - change[:from].to_i).abs, index] }
      end

      def row(from, to, absent)
        known = to || from
        bytes, children = [from, to].map { |row| row ? [row.bytes, row.children] : [absent, []] }.transpose
        change(known.id, label: known.label, from: bytes.first, to: bytes.last, changes: rows(*children, absent))
      end

      def change(id, label: id.to_s, from: nil, to: nil, counter: false, changes: [])
        { id: id, label: label, from: from, to: to, counter: counter, changes: changes }
      end
    end

    # @return [Array<Change>] the changes of a ledger's rows, the largest first; empty for other readings
    def rows = changes.find { |change| change.id == :rows }&.changes || []
  end
end
