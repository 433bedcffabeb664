# frozen_string_literal: true

require_relative "reading"
require_relative "allocator"
require_relative "ledger/row"

module Memscope
  # Every resident page of the process, by its proven owner. The rows sum to `rss_bytes`; what has no proven owner is
  # the row :unattributed, its mappings listed in its detail.
  #
  #   ledger = Memscope.ledger
  #   ledger.rss_bytes                     # => 873123840
  #   ledger[:malloc].bytes                # => 821540864
  #   ledger.dig(:ruby_heap, :live_slots)  # => a Ledger::Row
  #   (Memscope.ledger - ledger).rows      # what changed since
  class Ledger < Reading
    include Lookup

    # @!attribute [r] allocator
    #   @return [Allocator] read just before, in the same envelope
    field :allocator, Allocator, null: false
    # @!attribute [r] rss_bytes
    #   @return [Integer, nil] resident memory that this scan saw; nil without /proc
    field :rss_bytes, :bytes
    # @!attribute [r] source
    #   @return [Symbol] how it was scanned: :pagemap_scan, :pagemap, :smaps, or :none
    field :source, :symbol, null: false, one_of: %i[pagemap_scan pagemap smaps none]
    # @!attribute [r] statm_before_bytes
    #   @return [Integer, nil] resident memory by /proc/self/statm just before the scan
    field :statm_before_bytes, :bytes
    # @!attribute [r] statm_after_bytes
    #   @return [Integer, nil] and just after it
    field :statm_after_bytes, :bytes
    # @!attribute [r] held_by_objects_bytes
    #   @return [Integer, nil] what live objects say they hold through malloc, beyond their slots; nil unless asked for
    field :held_by_objects_bytes, :bytes
    # @!attribute [r] rows
    #   @return [Array<Row>] largest first
    field :rows, [Row], null: false

    class << self
      # @param body [Hash{Symbol => Object}] from the extension, and the allocator's body as :allocator
      def capture(body, envelope = self.envelope)
        super(body.merge(allocator: Allocator.capture(body[:allocator], envelope)), envelope)
      end

      # The allocator stands in the ledger without an envelope of its own: it shares the ledger's.
      #
      # @api private
      def load(hash, where)
        require_relative "loader"
        given = Loader.keyed(hash, where, self)
        return super unless given[:allocator].is_a?(Hash)

        allocator = Loader.keyed(given[:allocator], "#{where}: allocator", Allocator)
        envelope = { schema: given[:schema], kind: Allocator.kind, **given.slice(:memscope, :ruby, :pid, :at) }
        super({ **given, allocator: { **allocator, **envelope } }, where)
      end
    end

    def initialize(values)
      super({ **values, rows: values[:rows].sort_by.with_index { |row, index| [-row.bytes, index] }.freeze })
    end

    # @return [Integer, nil] what has no proven owner; nil where nothing was read
    def unattributed_bytes = rss_bytes && (rows.find { |row| row.id == :unattributed }&.bytes || 0)

    # @yield [Row] each row without children, in order
    # @return [Enumerator<Row>, self] an Enumerator without a block
    def each_leaf(&block)
      return enum_for(:each_leaf) unless block

      rows.each { |row| row.each_leaf(&block) }
      self
    end

    # @return [Hash{Symbol => Object}]
    def to_h = { **super, allocator: allocator.body }

    # @return [String] the first screen; plain ASCII where the locale is not UTF-8
    def to_s
      require_relative "report"
      Report.new(self, unicode: Encoding.default_external == Encoding::UTF_8).to_s
    end

    private

    def parts = rows
  end
end
