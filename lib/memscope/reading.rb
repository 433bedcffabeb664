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
    # @return [Integer] duration in microseconds
    field :wall_us, :count, null: false
    # @return [Integer] the part of it that held the GVL, in microseconds
    field :gvl_us, :count, null: false
    # @return [Integer] scratch memory that the reading used
    field :scratch_bytes, :bytes, null: false
  end

  # The base of everything that memscope reads: a Record in an envelope with its kind, versions, process and time. A
  # subclass declares its own fields with `field`; `reasons` and `cost` follow them.
  #
  # A field that is a counter (a total that only grows) is declared with `counters: true`, a Hash with the keys that are
  # counters (`counters: %i[count time]`); all other numbers are gauges.
  class Reading < Record
    # The layouts of `to_h` that `from_h` understands.
    SCHEMAS = [1].freeze

    # @return [String] version of memscope
    field :memscope, :string, null: false
    # @return [String] version of Ruby in the process
    field :ruby, :string, null: false
    # @return [Integer] process
    field :pid, :count, null: false
    # @return [Time] UTC, to the millisecond
    field :at, :time, null: false
    # @return [Hash{Symbol => String}] why a value is nil, missing or approximate
    field :reasons, :sentences, null: false
    # @return [Cost]
    field :cost, :cost, null: false

    ENVELOPE = own_fields.first(4).freeze
    CLOSING = own_fields.last(2).freeze
    private_constant :ENVELOPE, :CLOSING

    # It is built on demand.
    remove_method :cost

    class << self
      # @return [Array<Field>] of the envelope, its own, reasons and cost
      def fields = @fields ||= [*ENVELOPE, *own_fields, *CLOSING].freeze

      # @return [Array<Symbol>] names of the fields outside the envelope
      def body_names = [*own_fields, *CLOSING].map(&:name)

      # @return [String] "process_memory" for ProcessMemory
      def kind = @kind ||= name.split("::").last.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.freeze

      # Puts a body from the extension into an envelope of this process and moment, or into another reading's.
      #
      # @param body [Hash{Symbol => Object}] the fields, :reasons and :cost; becomes part of the reading
      # @param envelope [Hash{Symbol => Object}, nil]
      def capture(body, envelope = nil)
        body[:cost].freeze
        super(envelope ? body.update(envelope) : stamped(body))
      end

      # Checks an argument of `read` and of Memscope's method of this kind.
      #
      # @api private
      # @param name [Symbol] of the argument
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

    # @return [String] "ledger", "allocator", …
    def kind = self.class.kind

    def cost = Cost.capture(@values[:cost])

    # @return [Hash{Symbol => Object}] schema, kind, envelope, fields, reasons and cost; ready for JSON
    def to_h = { schema: SCHEMAS.last, kind: kind, **super }

    # @return [Hash{Symbol => Object}] `to_h` without the envelope
    def body = to_h.slice(*self.class.body_names)

    # @api private
    # @return [Hash{Symbol => Object}] for a reading of the same moment
    def envelope = @values.slice(*ENVELOPE.map(&:name))

    # What changed since an earlier reading. Loads memscope/diff when first used.
    #
    # @param other [Reading] the earlier one
    # @return [Diff]
    # @raise [TypeError] for a reading of another kind
    def -(other) = Diff.between(other, self)

    # Loads memscope/report when first used.
    #
    # @param options [Hash] of the kind of reading; `unicode: false` for plain ASCII, the default where the locale is
    #   not UTF-8
    # @return [String] for people, 80 columns; `inspect` for a kind that has no report
    def to_s(**options)
      require_relative "report"
      Report.render(self, unicode: Encoding.default_external == Encoding::UTF_8, **options)
    end

    private

    def shown_values = { **super.except(:memscope, :ruby, :cost), at: at }
  end
end
