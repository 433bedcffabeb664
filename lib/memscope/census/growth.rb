# frozen_string_literal: true

module Memscope
  class Census < Reading
    # What grew between two censuses: later - earlier, row by row.
    #
    # A growth is net: a freed object and a new one cancel out. If no garbage collection ran in between, nothing was
    # freed, and the growth is exactly what was allocated.
    class Growth < Reading
      # The change of one class, type, kind, slot size or age.
      class Row < Record
        # @return [String]
        field :name, :string, null: false
        # @return [Integer] objects of the later census minus those of the earlier
        field :count, :integer, null: false
        # @return [Integer] change of the bytes of their slots
        field :slot_bytes, :signed_bytes, null: false
        # @return [Integer] change of the bytes of their slots and malloc memory
        field :memsize_bytes, :signed_bytes, null: false
        # @return [Integer] change of the number of old objects
        field :old_count, :integer, null: false
        # @return [Integer] objects of the later census
        field :later_count, :count, null: false
        # @return [Integer, nil] as Census::Row#unsized_count, of the later census
        field :unsized_count, :count, sparse: true

        # @return [Symbol] the field that identifies a record in a list
        def self.identity = :name
      end

      include Grouped

      # @return [Float] time from the earlier census to the later
      field :seconds, :number, null: false
      # @return [Integer] process of the earlier census; `pid` is the later one's
      field :earlier_pid, :count, null: false
      # @return [Integer, nil] garbage collections that began in between; nil if unknown
      field :collections, :integer
      # @return [Integer, nil] objects; nil if either census is unknown
      field :total_count, :integer
      # @return [Integer, nil] bytes of their slots
      field :total_slot_bytes, :signed_bytes
      # @return [Integer, nil] bytes of their slots and malloc memory
      field :total_memsize_bytes, :signed_bytes
      # @return [Integer, nil] old objects
      field :total_old_count, :integer
      together :total_count, :total_slot_bytes, :total_memsize_bytes, :total_old_count
      # @return [Array<Row>] by class; rows without a change are left out, here and below
      field :classes, [Row], null: false
      # @return [Array<Row>] by type
      field :types, [Row], null: false
      # @return [Array<Row>] of internal objects, by kind
      field :imemos, [Row], null: false
      # @return [Array<Row>] by slot size
      field :slot_sizes, [Row], null: false
      # @return [Array<Row>] young and old
      field :ages, [Row], null: false

      # @return [Array<Row>] classes of C code whose objects report no malloc memory, or hardly any, by the number of
      #   objects that came: contexts of V8, images, stores of certificates may hold much that Ruby does not know of
      def unsized
        came = classes.select(&:unsized_count).reject { |row| row.count < 1 || Terms.own?(row.name) }
        came.sort_by { |row| [-row.count, row.name] }
      end

      CHANGES = %i[count slot_bytes memsize_bytes old_count].freeze
      private_constant :CHANGES

      class << self
        # @return [String] "census_growth"
        def kind = "census_growth"

        # @param earlier [Census]
        # @param later [Census]
        # @return [Growth] in the later census's envelope, at no cost
        def between(earlier, later)
          known = earlier.known? && later.known?
          collections = later.gc_count - earlier.gc_count if known && same?(earlier, later)
          capture({ seconds: (later.at - earlier.at).to_f, earlier_pid: earlier.pid, collections: collections,
                    **totals(earlier, later), **rows(earlier, later, known),
                    reasons: reasons_of(earlier, later, collections), cost: Cost.of(:T0) }, later.envelope)
        end

        private

        def same?(earlier, later)
          earlier.pid == later.pid && (!earlier.process || !later.process || later.process.same?(earlier.process))
        end

        def totals(earlier, later)
          CHANGES.map { |change| :"total_#{change}" }.to_h do |total|
            from, to = [earlier, later].map(&total)
            [total, from && to && (to - from)]
          end
        end

        def rows(earlier, later, known)
          GROUPINGS.values.to_h do |name|
            [name, known ? changes(earlier.public_send(name), later.public_send(name)) : []]
          end
        end

        # A class that is missing from one census had no objects then.
        def changes(earlier, later)
          pairs = [earlier, later].map { |rows| rows.to_h { |row| [row.name, row] } }
          changes = (pairs.last.keys | pairs.first.keys).filter_map { |name| change(name, *pairs.map { _1[name] }) }
          changes.sort_by { |row| [-row[:memsize_bytes], -row[:count], row[:name]] }
        end

        def change(name, from, to)
          numbers = CHANGES.to_h { |key| [key, (to ? to.public_send(key) : 0) - (from ? from.public_send(key) : 0)] }
          return if numbers.values.all?(&:zero?)

          { name: name, **numbers, later_count: to ? to.count : 0, unsized_count: to&.unsized_count }
        end

        def reasons_of(earlier, later, collections)
          fell = "the subtracted census is the later one: the numbers show what fell" if earlier.at > later.at
          own = { pid: other_process(earlier, later), seconds: fell, count: garbage(earlier, later),
                  collections: net(earlier, later, collections) }
          { **earlier.reasons, **later.reasons, **own }.compact
        end

        def other_process(earlier, later)
          return if same?(earlier, later)
          return "the censuses are of two processes, both with pid #{later.pid}" if earlier.pid == later.pid

          "the earlier census is of process #{earlier.pid}, the later of #{later.pid}"
        end

        def garbage(earlier, later)
          left = { earlier: earlier, later: later }.reject { |_which, census| census.collected? }.keys
          "the #{left.join(' and the ')} census counted garbage too; --gc (gc: true) collects it first" if left.any?
        end

        def net(earlier, later, collections)
          return unless earlier.known? && later.known?
          return "no GC ran in between: the growth is all that was allocated, garbage included" if collections&.zero?

          "net growth: freed objects cancel out new ones, so it is not known which objects are new"
        end
      end
    end
  end
end
