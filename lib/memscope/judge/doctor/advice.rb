# frozen_string_literal: true

module Memscope
  module Doctor
    # The part of Figures that speaks: texts of rules.words, filled with figures, and those that several rules share.
    # @api private
    module Advice
      # @return [String] as Rules.text
      def text(name, of: nil, **given) = Rules.text(self, name, of, given)

      # @return [String] the process, in commands, which it answers if it listens
      def pid = ledger.pid.to_s

      private

      # The command that judges again, after a collection; nil after one.
      def collect = (text(:collect) unless ledger.collected)

      # Sentences on retainers and the class that grew; none if nothing is kept that can explain so many bytes.
      def holders(bytes)
        kept = objects or return []
        path = kept.holder
        [(holder(kept.graph_at, path) if path && path.accumulated_bytes >= bytes / 4),
         (grown(kept) if kept.grown&.change.to_i >= MEBIBYTE)].compact
      end

      def holder(at, path)
        text(path.held_class ? :graph_of_objects : :graph, at: at&.strftime("%F %T"), path: path, type: path.held_class,
                                                           held_bytes: path.accumulated_bytes, objects: path.held_count)
      end

      def grown(kept)
        text(:census, time: format("%.0f", kept.census_seconds || 0), type: kept.grown.name,
                      grown_bytes: kept.grown.change)
      end

      # A sentence on classes of C code whose objects hold memory that Ruby does not know of, if more objects came; nil
      # if none are known to have come.
      def unsized
        return unless (rows = objects&.unsized)&.any?

        text(:came, objects: rows.map { |row| "#{count(row.change)} #{row.name}" }.join(", "))
      end

      # A sentence with the verdict on the process's history; nil if the history is absent or too short.
      def by_history = (text(:by_history, verdict: verdict.sentence) if judged?)

      # A sentence on how much of the memory in use is garbage; if that is unknown, on how much may be garbage. nil if
      # the amount is too little to matter, as right after a collection.
      def unjudged
        bytes = garbage_bytes
        text(garbage ? :garbage : :garbage_at_most) unless bytes.nil? || bytes < (garbage ? FLOOR : MEBIBYTE)
      end

      # A sentence on the free memory that may be headroom between collections; nil if the collector is off.
      def headroom
        limits = environment.raised(:malloc).map { |text| " (#{text})" }.join
        text(:headroom, room_bytes: gc_room, limits: limits) unless collector_off
      end

      # Why nothing returns the free memory between used blocks or, if these blocks may be garbage, the possible effect
      # of a collection.
      def between_blocks(why) = [unjudged, text(unjudged && collect ? :collection_may_free : why)].compact.join(" ")

      # The rule's remedy for free memory between used blocks, and its cost. If garbage may keep these pages
      # resident, the remedy first collects the garbage.
      def after_collection(rule)
        return %i[remedy cost] unless unjudged && collect

        [[collect, :remedy], text(:after_collection, cost: text(:cost, of: rule))]
      end

      # A sentence on the limit at which Ruby makes its next full GC.
      def next_full
        return text(:no_next_full, called: collector_off.first) if collector_off

        limit, old, most = snapshot.gc.values_at(:oldmalloc_increase_bytes_limit, :old_objects, :old_objects_limit)
        return text(:next_full) if unjudged_increase_bytes >= limit || (old && most && old >= most)

        variables = environment.raised(:malloc)
        raised = text(:raised, variables: variables.join(" and ")) if variables.any?
        text(old && most ? :next_full_at_either : :next_full_at,
             limit_bytes: limit, most: most, old: old, raised: raised)
      end
    end
  end
end
