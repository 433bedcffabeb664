# frozen_string_literal: true

# Required before the first reading: required later, their memory would be the program's.
require_relative "../../check/requires"
require_relative "require_tree"
require_relative "require_recorder"

module Memscope
  module Launch
    # What the program has added since `start`, by the files that RequireRecorder has numbered.
    class RequireCosts
      # A mapping in smaps, with its file if it has one, and the figures below it that a file is charged for.
      MAPPING = %r{\A\h+-\h+ \S+ \h+ \S+ \d+ *(/.*)?}
      RESIDENT = /\A(Private|Shared)_(?:Clean|Dirty): +(\d+) kB/
      private_constant :MAPPING, :RESIDENT

      # Call this before the program's script runs, which may change its arguments.
      #
      # @return [String, nil] why nothing can be recorded; nil if it is
      def start
        obstacle = ObjectProfile.obstacle
        return obstacle if obstacle

        @program = [$PROGRAM_NAME, *ARGV].map { |word| word.empty? ? '""' : word.scrub }.join(" ")
        2.times { read } # the first reading allocates what later ones use again
        @before = read
        @compactions = compactions
        RequireRecorder.start&.then { |why| Reasons.sentence(why) }
      end

      # Ends recording. Call once.
      #
      # @return [Requires]
      def finish = Requires.capture(body)

      private

      def body
        started = Cost.now
        Native.own(Native::OWNER_MEMSCOPE)
        after, owned = measure
        tree = RequireTree.new(RequireRecorder.entries, owned, after[:files])
        nodes = tree.nodes
        gems = Requires.gems(nodes.map { |node| Requires::Node.capture(node.dup) }, tree.again(RequireRecorder.again))
        { **environment(after), **totals(after, nodes), nodes: nodes, gems: gems, reasons: reasons(after),
                                                        cost: Cost.of(:T3, Cost.now - started) }
      end

      # No garbage is collected between the two counts of the heap. What other threads allocate between the two
      # counts belongs to no file.
      def measure
        2.times { GC.start } # the second one frees objects that the first left to finalizers
        disabled = GC.disable
        # Threads may have added their entries in another order than that of their numbers.
        owned = Native.owned((RequireRecorder.entries.map(&:number).max || Native::OWNER_MEMSCOPE) + 1)
        @own_objects, @own_malloc = owned[Native::OWNER_MEMSCOPE].values_at(1, 3)
        after = read(collect: false)
        @lost, @crowded, @watched = Native.stop_owners
        [after, owned]
      ensure
        GC.enable unless disabled
      end

      # The rows of the ledger whose growth is charged to files, and the mapped files.
      def read(collect: true)
        2.times { GC.start } if collect
        ledger = Ledger.read(deep: true, strict: true)
        { objects: ledger.dig(:ruby_heap, :live_slots).bytes, malloc: ledger[:malloc].detail[:in_use_bytes],
          files: files, allocator: ledger.allocator }
      end

      # @return [Hash{String => Array(Integer, Integer)}] private and shared resident bytes, by mapped file
      def files
        sums = Hash.new { |all, path| all[path] = [0, 0] }
        path = nil
        File.foreach("/proc/self/smaps") do |line|
          if (mapping = MAPPING.match(line)) then path = mapping[1]
          elsif path && (figure = RESIDENT.match(line))
            sums[path][figure[1] == "Private" ? 0 : 1] += figure[2].to_i << 10
          end
        end
        sums
      end

      def totals(after, nodes)
        objects = rise(after, :objects, @own_objects)
        malloc = rise(after, :malloc, @own_malloc)
        mapped = [after, @before].map { |reading| reading[:files].values.flatten.sum }.reduce(:-)
        { objects_bytes: objects, malloc_bytes: malloc, mapped_bytes: mapped,
          other_objects_bytes: objects - nodes.sum { |node| node[:objects_bytes] },
          other_malloc_bytes: malloc && (malloc - nodes.sum { |node| node[:malloc_bytes] }),
          other_mapped_bytes: mapped - nodes.sum { |node| mapped_by(node) } }
      end

      # memscope's own records do not count as the program's cost.
      def rise(after, name, own) = after[name] && @before[name] && (after[name] - @before[name] - own)

      def mapped_by(node) = node[:mapped_private_bytes].to_i + node[:mapped_shared_bytes].to_i

      def environment(after)
        allocator = after[:allocator]
        { program: @program, load_path: $LOAD_PATH.map { |path| path.to_s.scrub },
          allocator: [allocator.name, allocator.short_version].compact.join(" "),
          yjit: defined?(RubyVM::YJIT.enabled?) ? RubyVM::YJIT.enabled? : false, bootsnap: !defined?(::Bootsnap).nil? }
      end

      def reasons(after)
        { malloc_bytes: (:statistics_unread unless after[:malloc] && @before[:malloc]),
          other_malloc_bytes: ([:requires_lost, @lost] if @lost.positive?),
          other_objects_bytes: ([:requires_crowded, @crowded] if @crowded.positive?),
          objects_bytes: objects_reason,
          nodes: (:requires_transient if RUBY_VERSION < "3.3") }.compact
      end

      def objects_reason
        return :requires_beside_ractor unless @watched

        :requires_compacted if compactions != @compactions
      end

      def compactions = GC.stat[:compact_count]
    end
  end
end
