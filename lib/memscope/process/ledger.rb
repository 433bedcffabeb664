# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # Only a ledger with `garbage` needs Blocks.
  RubyHeap.autoload :Blocks, "#{__dir__}/ruby_heap/blocks.rb"

  # Every resident byte of the process, each in exactly one innermost row: that of its proven owner or, if it has none,
  # :unattributed, whose detail lists the mappings of pages without an owner. The rows sum to `rss_bytes`.
  #
  #   ledger = Memscope.ledger
  #   ledger.rss_bytes                     # => 873123840
  #   ledger[:malloc].bytes                # => 821540864
  #   ledger.dig(:ruby_heap, :live_slots)  # => a Ledger::Row
  #   (Memscope.ledger - ledger).rows      # the changes since
  class Ledger < Reading
    # A row compared with an independent source.
    class Check < Record
      # @return [Integer] actual minus expected
      def difference_bytes = actual_bytes - expected_bytes
    end

    # Resident bytes of one owner. The children's bytes sum to the row's.
    class Row < Record
      # @api private
      def self.nested = :children

      include Lookup

      # @return [Boolean] whether it has no children
      def leaf? = children.empty?

      # @return [Array<Row>] itself if it is a leaf, else every leaf below it
      def leaves = leaf? ? [self] : children.flat_map(&:leaves)

      # @return [Boolean] whether reports show it: a zero matters in the row :unattributed only
      def visible? = !bytes.zero? || id == :unattributed || children.any?(&:visible?)

      # @api private
      # @return [Array<Array(Symbol, Row, Array<Row>)>] itself and every row below it, as Ledger#each_path yields them
      def paths(above = [], path = id)
        [[path, self, above], *children.flat_map { |child| child.paths([*above, self], :"#{path}/#{child.id}") }]
      end
    end

    include Lookup

    # (see Memscope.ledger)
    def self.read(deep: false, shared: false, objects: false, strict: false, gc: false, garbage: false, native: Native)
      { deep: deep, shared: shared, objects: objects, strict: strict, gc: gc, garbage: garbage }
        .each { |name, value| check_switch(name, value) }
      return survey(shared: shared, strict: strict, gc: gc, native: native).first if garbage

      of(native, gc ? RubyHeap::Garbage.collect(native) : nil) { native.ledger(deep, shared, objects, strict) }
    end

    # For readings that repeat: on Ruby 3.4 and newer, a ledger finishes a garbage collection in progress, which stops
    # Ruby for longer. First waits until there is none: for two seconds at most, and for 20 ms if nothing allocates.
    # @api private
    def self.read_between_collections(deep: false)
      Native.await_gc
      read(deep: deep)
    end

    # A ledger with `garbage`, the Blocks that the same forked child found, and Ruby's heap with its pins.
    # @api private
    def self.survey(shared: true, strict: false, gc: false, native: Native)
      blocks = heap = nil
      ledger = of(native, gc ? RubyHeap::Garbage.collect(native) : nil) do
        body = native.object_blocks(shared, strict)
        scan, pins = %i[ledger ruby_heap].map { |name| body.delete(name) }
        blocks = Loading.unit(:Blocks, RubyHeap).capture(body)
        heap = pins ? RubyHeap.of(pins, native) : RubyHeap.bounded(objects: true, native: native)
        scan.update(held_by(blocks.all ? blocks : heap, scan), garbage_max_bytes: blocks.garbage_max_bytes)
        scan.update(cost: body[:cost], reasons: { **scan[:reasons], garbage: garbage_reason(blocks) }.compact)
      end
      [ledger, blocks, heap]
    end

    def self.held_by(heap, scan)
      reasons = { **heap.reasons.slice(:held_by_objects_bytes, :buffers), **scan[:reasons] }
      if heap.is_a?(RubyHeap::Blocks)
        malloc_detail(scan)&.store(:held_absent_bytes, heap.all.absent_bytes)
        reasons[:held_by_objects_bytes] = :held_beyond_malloc if heap.overstated?
      end
      { held_by_objects_bytes: heap.held_by_objects_bytes, reasons: reasons }
    end

    # Why the rows are not split into reachable and garbage, or a note that more may be garbage.
    def self.garbage_reason(blocks)
      return blocks.reasons[:all] || blocks.reasons[:extension] unless blocks.garbage

      blocks.unfollowed_names&.then { |names| Reasons.sentence([:garbage_unfollowed, names]) }
    end

    def self.of(native, collected)
      unjudged = RubyHeap::Garbage.unjudged_bytes(native) if collected
      allocator = Allocator.body(native)
      body = yield.update(allocator: allocator, collected: collected)
      body[:garbage_max_bytes] = [body[:garbage_max_bytes], collectable(body[:rows]), unjudged].compact.min
      body[:cost] = sum(body[:cost], Cost.of(:T2, collected[:pause_us])) if collected
      malloc_detail(body)&.then { |detail| add_jit_metadata(detail, native) }
      if (inflation = native.profile_inflation)
        body[:reasons][:malloc] = [:samples_inflate_malloc, inflation.to_s]
      end
      capture(body)
    end

    def self.malloc_detail(body) = body[:rows].find { |row| row[:id] == :malloc }&.fetch(:detail)

    # Adds the malloc memory of Ruby's just-in-time compilers, besides the code, where this Ruby reports it. It gets no
    # row, because it is unknown in which heaps these blocks are, and how much of them is resident.
    def self.add_jit_metadata(detail, native)
      bytes = native.jit_bytes
      return unless bytes.positive?

      detail[:jit_metadata_bytes] = bytes
      detail[:untracked_bytes] = [detail[:untracked_bytes] - bytes, 0].max if detail[:untracked_bytes]
    end

    # An upper bound on the bytes that a GC can free, or nil if the rows do not show it.
    def self.collectable(rows)
      heap, malloc = %i[ruby_heap malloc].map { |id| rows.find { |row| row[:id] == id } }
      live = heap && heap[:children].find { |row| row[:id] == :live_slots }
      live[:bytes] + (malloc[:detail][:in_use_bytes] || malloc[:bytes]) if live && malloc && malloc[:bytes].positive?
    end

    def self.sum(*costs) = Cost.sum(costs.map { |cost| Cost.capture(cost) })
    private_class_method :held_by, :garbage_reason, :of, :malloc_detail, :add_jit_metadata, :collectable, :sum

    # @param body [Hash{Symbol => Object}] from the extension, and the allocator's body as :allocator
    def self.capture(body, envelope = nil)
      allocator = Allocator.capture(body[:allocator], envelope)
      super(body.update(allocator: allocator), allocator.envelope)
    end

    def initialize(values)
      super({ **values, rows: values[:rows].sort_by.with_index { |row, index| [-row.bytes, index] }.freeze })
    end

    # @api private
    def row(*path) = path.reduce(self) { |above, id| above&.part(id) }

    # @return [Integer, nil] the part of `rss_bytes` on pages that no other process shares: the machine gains it when
    #   the process ends. nil without `shared: true`
    def private_bytes = (Quantity.total(rows.map(&:private_bytes)) if rows.any?)

    # @api private
    # @param bytes [Range<Integer>] bounds of a number of bytes, anywhere on the pages of a top row
    # @return [Range<Integer>, nil] bounds of how many of these are on private pages, or nil if it is unknown
    def unshared(id, bytes, least: 0)
      row = part(id)
      return unless row&.shared_bytes

      most = [bytes.end, row.private_bytes].min
      (bytes.begin - row.shared_bytes).clamp(least, most)..most
    end

    # @api private
    # @param bytes [Range<Integer>] bounds of a number of bytes, anywhere on malloc's pages
    # @return [Range<Integer>] bounds of how many of these the kernel takes back when malloc returns them: resident ones
    def returnable(bytes)
      malloc = row(:malloc) or return bytes
      kept = malloc.detail[:madvise_refused] ? malloc.bytes : malloc.detail.fetch(:locked_bytes, 0)
      most = (malloc.bytes - kept).clamp(0, bytes.end)
      (bytes.begin - kept).clamp(0, most)..most
    end

    # @api private
    # @return [String, nil] why the kernel does not take back some of malloc's memory, or nil if it takes back all of it
    def kept_reason
      detail = row(:malloc)&.detail || {}
      return Reasons.sentence(:madvise_refused) if detail[:madvise_refused]

      Reasons.sentence([:malloc_locked, detail[:locked_bytes].to_s]) if detail[:locked_bytes]
    end

    # @return [Integer, nil] memory on pages without a proven owner, or nil if nothing could be read
    def unattributed_bytes = rss_bytes && (row(:unattributed)&.bytes || 0)

    # @yield [Row] each row without children, in order
    # @return [Enumerator<Row>, self] an Enumerator without a block
    def each_leaf(&block)
      leaves = rows.flat_map(&:leaves).each(&block)
      block ? self : leaves
    end

    # @yieldparam path [Symbol] :malloc, :"malloc/main_heap", …
    # @yieldparam row [Row] each row at every depth, before its children
    # @yieldparam above [Array<Row>] its ancestors, the top row first
    # @return [Enumerator, self] an Enumerator without a block
    def each_path(&block)
      paths = rows.flat_map(&:paths).each(&block)
      block ? self : paths
    end

    # @return [Integer, nil] memory in the rows :garbage, which no reference reaches. nil without `garbage: true`, or
    #   if the garbage is unknown
    def garbage_bytes
      parts = each_leaf.select { |row| row.id == :garbage }
      parts.sum(&:bytes) unless parts.empty?
    end

    # @return [Integer, nil] memory that Ruby accounts for: live slots and, with `objects: true`, memory that live
    #   objects hold through malloc, or nil if Ruby's rows are not split
    def ruby_bytes = row(:ruby_heap, :live_slots)&.bytes&.+(held_by_objects_bytes || 0)

    # @api private
    # @return [Hash{Symbol => Integer}] bytes of the rows without children, by path. They sum to `rss_bytes`
    def leaf_bytes = each_path.filter_map { |path, row| [path, row.bytes] if row.leaf? }.to_h

    # @api private
    def unverified_rows = each_path.count { |_path, row| row.check && !row.check.verified? }

    # @return [Hash{Symbol => Object}] the allocator in it has no envelope of its own
    def to_h = { **super, allocator: allocator.body }
  end
end
