# frozen_string_literal: true

require_relative "record"
require_relative "version"

module Memscope
  # What a reading cost.
  #
  # Tiers: T0 a few µs; T1 under 1 ms; T2 milliseconds per GB; T3 walks.
  class Cost < Record
    # @return [Symbol] :T0, :T1, :T2 or :T3
    field :tier, :symbol, null: false, one_of: %i[T0 T1 T2 T3]
    # @return [Integer] how long it took, in microseconds
    field :wall_us, :count, null: false
    # @return [Integer] for how much of that the GVL was held
    field :gvl_us, :count, null: false
    # @return [Integer] memory of its own that it worked in
    field :scratch_bytes, :bytes, null: false
  end

  # The base of everything that memscope reads: a Record inside an envelope that says what it is, who wrote it, and of
  # which process and moment it is. A subclass declares its own fields with `field`; `reasons` and `cost` follow them.
  #
  # Counters among the fields (totals that only grow) are declared with `counters: true`, or for a Hash with the keys
  # that are such (`counters: %i[count time]`); all other numbers are gauges.
  class Reading < Record
    # The layouts of `to_h` that `from_h` understands.
    SCHEMAS = [1].freeze

    # @return [String] the version of memscope that read it
    field :memscope, :string, null: false
    # @return [String] the version of the Ruby that it was read in
    field :ruby, :string, null: false
    # @return [Integer] the process
    field :pid, :count, null: false
    # @return [Time] UTC, to the millisecond
    field :at, :time, null: false
    # @return [Hash{Symbol => String}] why something is nil, missing or coarse
    field :reasons, :sentences, null: false
    # @return [Cost]
    field :cost, :cost, null: false

    ENVELOPE = own_fields.first(4).freeze
    CLOSING = own_fields.last(2).freeze
    private_constant :ENVELOPE, :CLOSING

    # Both are made when they are asked for.
    remove_method :at, :cost

    class << self
      # @return [Array<Field>] the envelope's, its own, reasons and cost
      def fields = @fields ||= [*ENVELOPE, *own_fields, *CLOSING].freeze

      # @return [Array<Symbol>] the names of the fields that a body from the extension has
      def body_names = [*own_fields, *CLOSING].map(&:name)

      # Declares the list that the reading is a Collection of.
      #
      # @!macro [attach] reading_collection
      #   @!attribute [r] $1
      # @return [void]
      def collection(name, type, **options)
        field(name, type, null: false, **options)
        define_method(:parts) { @values[name] }
        private :parts
        include Collection
      end

      # @return [String] "process_memory" for ProcessMemory
      def kind = @kind ||= name.split("::").last.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.freeze

      # Puts a body from the extension into an envelope of this process and moment, or of another reading's.
      #
      # @param body [Hash{Symbol => Object}] the fields, :reasons and :cost; the reading keeps it as its own
      # @param envelope [Hash{Symbol => Object}, nil]
      def capture(body, envelope = nil)
        body[:cost].freeze
        super(envelope ? body.update(envelope) : stamped(body))
      end

      # Checks an argument of `read`, which is the call of the same name in Memscope.
      #
      # @api private
      # @param name [Symbol] the argument
      # @return [Boolean] the value
      # @raise [ArgumentError] unless it is true or false
      def check_switch(name, value)
        return value if value == true || value == false # rubocop:disable Style/MultipleComparison -- allocates no Array

        raise ArgumentError, "Memscope.#{kind}: #{name}: given #{value.inspect}, allowed: true, false"
      end

      private

      def stamped(body)
        body[:memscope] = VERSION
        body[:ruby] = RUBY_VERSION
        body[:pid] = Process.pid
        body[:at] = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
        body
      end
    end

    # @return [String] what it is a reading of: "ledger", "allocator", …
    def kind = self.class.kind

    def at = Time.at(0, @values[:at], :millisecond).utc.freeze

    def cost = Cost.capture(@values[:cost])

    # @return [Hash{Symbol => Object}] schema, kind, the rest of the envelope, the fields, reasons and cost; ready
    #   for JSON
    def to_h = { schema: SCHEMAS.last, kind: kind, **super, at: at.strftime("%Y-%m-%dT%H:%M:%S.%LZ") }

    # @return [Hash{Symbol => Object}] `to_h` without the envelope
    def body = to_h.slice(*self.class.body_names)

    # @api private
    # @return [Hash{Symbol => Object}] its moment, for a reading that shares it
    def envelope = @values.slice(*ENVELOPE.map(&:name))

    # What changed since an earlier reading of the same kind. Loads memscope/diff when first used; require that
    # beforehand where it is to be used in a trap handler.
    #
    # @param other [Reading] the earlier one
    # @return [Diff]
    # @raise [TypeError] when the other is no reading of this kind
    def -(other) = Diff.between(other, self)

    # For people, 80 columns; of a reading that is not printed as a page or a table, what `inspect` returns. Loads
    # memscope/report when first used.
    #
    # @param options [Hash] of the kind of reading; `unicode: false` for plain ASCII, the default where the locale is
    #   not UTF-8
    # @return [String]
    def to_s(**options)
      require_relative "report"
      Report.render(self, unicode: Encoding.default_external == Encoding::UTF_8, **options)
    end

    private

    def shown_values = { **super.except(:memscope, :ruby, :cost), at: at }
  end

  # A reading that lists one kind of record, and is Enumerable over them.
  module Collection
    include Enumerable

    TO_H = Reading.instance_method(:to_h)
    private_constant :TO_H

    # @yield [Record] each, in the list's order
    # @return [Enumerator<Record>, self] an Enumerator without a block
    def each(&block)
      return enum_for(:each) { parts.size } unless block

      parts.each(&block)
      self
    end

    # @return [Hash{Symbol => Object}] as of every reading; Enumerable's would need pairs
    def to_h = TO_H.bind_call(self)
  end
end
