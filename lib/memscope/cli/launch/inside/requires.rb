# frozen_string_literal: true

require_relative "report"

module Memscope
  module Launch
    # Reports the memory that the program has added from before its script until its end, by the files that
    # RequireRecorder has numbered.
    class ProgramRequires < ProgramReport
      def start
        load_memscope
        # Required before the first reading: required later, their memory would be the program's.
        Loading.units(:Mappings, :Requires)
        require_relative "require_tree"
        require_relative "require_recorder"
        why = record or return report_at_exit

        complain(:no_report, why: why)
      rescue StandardError, ScriptError => e
        complain(:no_report, why: "#{e.message} (#{e.class})")
      end

      private

      # Call this before the program's script runs, which may change its arguments.
      #
      # @return [String, nil] why nothing can be recorded, or nil if it is
      def record
        obstacle = ObjectProfile.obstacle
        return obstacle if obstacle

        @by_option = option_r?
        @program = [$PROGRAM_NAME, *ARGV].map { |word| word.empty? ? '""' : word.scrub }.join(" ")
        2.times { read } # the first reading allocates what later ones use again
        @before = read
        @compactions = compactions
        RequireRecorder.start&.then { |why| Reasons.sentence(why) }
      end

      # True if Ruby's command line has the option -r, alone or after letters of options without an argument. The words
      # at its end are the program's own.
      def option_r?
        words = File.binread("/proc/self/cmdline").lines("\0", chomp: true)
        words.reverse.drop(ARGV.size).any?(/\A-[acdhlnpsSvwy]*r/)
      end

      # Ends recording.
      def readings = [Requires.capture(body)]

      def body
        started = Cost.now
        Native.own(Native::OWNER_MEMSCOPE)
        after, owned = measure
        tree = RequireTree.new(RequireRecorder.entries, owned, after[:files])
        nodes = tree.nodes
        records = nodes.map { |node| Requires::Node.capture(node.dup) }
        allocator = after[:allocator]
        { program: @program, load_path: $LOAD_PATH.map { |path| path.to_s.scrub },
          allocator: [allocator.name, allocator.short_version].compact.join(" "),
          yjit: defined?(RubyVM::YJIT.enabled?) ? RubyVM::YJIT.enabled? : false, bootsnap: !defined?(::Bootsnap).nil?,
          **totals(after, nodes), nodes: nodes, gems: Requires.gems(records, tree.again(RequireRecorder.again)),
          reasons: reasons(after), cost: Cost.of(:T3, Cost.now - started) }
      end

      # No garbage is collected between the two counts of the heap. Allocations of other threads between the
      # two counts belong to no file.
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

      # The rows of the ledger whose growth is charged to files, and the resident bytes of the mapped files.
      def read(collect: true)
        2.times { GC.start } if collect
        ledger = Ledger.read(deep: true, strict: true)
        files = Mappings.read.select { |mapping| mapping.name.start_with?("/") }.group_by(&:name)
        { objects: ledger.dig(:ruby_heap, :live_slots).bytes, malloc: ledger[:malloc].detail[:in_use_bytes],
          files: files.transform_values { |some| some.sum(&:resident_bytes) }, allocator: ledger.allocator }
      end

      def totals(after, nodes)
        totals = { objects_bytes: rise(after, :objects, @own_objects), malloc_bytes: rise(after, :malloc, @own_malloc),
                   mapped_bytes: [after, @before].map { |reading| reading[:files].values.sum }.reduce(:-) }
        others = totals.to_h { |name, all| [:"other_#{name}", all && (all - nodes.sum { |node| node[name] })] }
        { **totals, **others }
      end

      # memscope's own records do not count as the program's cost.
      def rise(after, name, own) = after[name] && @before[name] && (after[name] - @before[name] - own)

      def reasons(after)
        { malloc_bytes: (:statistics_unread unless after[:malloc] && @before[:malloc]),
          other_malloc_bytes: ([:requires_lost, @lost] if @lost.positive?),
          other_objects_bytes: ([:requires_crowded, @crowded] if @crowded.positive?), objects_bytes: objects_reason,
          nodes: (:requires_transient if RUBY_VERSION < "3.3"), gems: (:requires_by_option if @by_option) }.compact
      end

      def objects_reason
        return :requires_beside_ractor unless @watched

        :requires_compacted if compactions != @compactions
      end

      def compactions = GC.stat[:compact_count]
    end
  end
end
