# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # The number of objects in Ruby's heap, by class, and their bytes.
  #
  #   before = Memscope.census(gc: true)
  #   work
  #   (Memscope.census(gc: true) - before).by(:class).first.name  # => "Order"
  #
  # Every live slot is counted, including internal objects, which are hidden from Ruby code, and garbage that is not
  # collected yet (with `gc: true`, only garbage that the collection before the count did not free).
  class Census < Reading
    # The objects of one class, type, kind, slot size or age.
    class Row < Record
      # @return [Symbol] the number by which a Diff sorts
      def self.weight = :memsize_bytes
    end

    # The groupings, each with the field that has its rows.
    GROUPINGS = { class: :classes, type: :types, imemo: :imemos, slot_size: :slot_sizes, age: :ages }.freeze

    # The surfaces take a census in the process if it needs at most this many microseconds under the GVL.
    BUDGET_US = 10_000
    private_constant :BUDGET_US

    class << self
      # (see Memscope.census)
      def read(gc: false, private: false, native: Native) = take(gc, private, nil, native)

      # Like `read`, but with the waiting and the forked child of RubyHeap.bounded.
      # @api private
      def bounded(gc: false, private: false, budget_us: BUDGET_US) = take(gc, private, budget_us, Native)

      private

      # Pages that were shared before the collection count as shared: the collection itself writes to pages.
      def take(collect, private, budget_us, native)
        check_switch(:gc, collect)
        shared = native.inherited if check_switch(:private, private)
        body = native.census(collect, budget_us, shared)
        GROUPINGS.each_value { |rows| body[rows].sort_by! { |row| [-row[:memsize_bytes], row[:name]] } }
        body[:reasons][:names] = :names_from_code if body[:total_count]
        body[:private] = private || nil
        capture(body)
      end
    end

    # The growth since an earlier census, row by row: `by(:class)`. It is net: a freed object and a new one cancel out.
    # If no garbage collection ran in between, nothing was freed, and the growth is all that was allocated.
    #
    # @param other [Census] the earlier one
    # @return [Diff]
    # @raise [TypeError] for a reading of another kind
    def -(other)
      diff = Loading.unit(:Diff)
      reasons = { count: garbage(of_this_kind(other)), collections: net(other) }
      diff.between(other, self, names: GROUPINGS.invert, reasons: reasons)
    end

    # @param grouping [Symbol] a key of GROUPINGS: :class; :type, as ObjectSpace.count_objects names it; :imemo, the
    #   kind of an internal object; :slot_size, in bytes; :age, "young" or "old"
    # @return [Array<Row>] the largest memsize_bytes first
    # @raise [ArgumentError] for an unknown grouping
    def by(grouping)
      public_send(GROUPINGS[Field.choice(:grouping, grouping, GROUPINGS.keys, call: "#{self.class}#by")])
    end

    # Classes of C code with new objects that report hardly any malloc memory. Contexts of V8, images or stores of
    # certificates may hold much that Ruby does not know of.
    # @api private
    # @return [Array<Diff::Row>] the growth of their numbers of objects, the largest first
    def self.unsized(diff)
      rows = (diff.part(:class)&.rows || []).select do |row|
        row.part(:unsized_count)&.after && row.change_of(:count).positive? && !Terms.own?(row.name)
      end
      rows.sort_by { |row| [-row.change_of(:count), row.name] }.map { |row| row[:count].named(row.name) }
    end

    private

    def garbage(earlier)
      left = { earlier: earlier, later: self }.reject { |_which, census| census.collected? }.keys
      "the #{left.join(' and the ')} census counted garbage too; --gc (gc: true) collects it first" if left.any?
    end

    def net(earlier)
      return unless earlier.known? && known?

      none = gc_count == earlier.gc_count && Diff.same_process?(earlier, self)
      return "no GC ran in between: the growth is all that was allocated, garbage included" if none

      "net growth: freed objects cancel out new ones, so it is not known which objects are new"
    end
  end
end
