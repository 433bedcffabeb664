# frozen_string_literal: true

module Memscope
  module Doctor
    # The part of Figures that rules share: commands, and sentences with their numbers.
    #
    # @api private
    module Advice
      PROFILING = "takes half a minute, and a few per cent of the time of threads " \
                  "that allocate, then collects garbage; shows only memory allocated meanwhile"
      WALKING = "a heap graph takes 1 to 3 s and 60 to 120 MiB per million objects, in a forked child"
      private_constant :PROFILING, :WALKING

      private

      # A command for this process, which it answers if it listens.
      def command(name, *words) = ["memscope #{name} --pid #{ledger.pid}", *words].join(" ")

      # The command that judges again, after a collection; nil after one.
      def collect = (command("doctor", "--gc") unless ledger.collected)

      # The remedy that shows which lines allocate, without a restart.
      def profile = [command("profile", "--backend=imports", "--seconds 30", "--gc"), PROFILING]

      # The remedy that shows which constant, variable or thread holds objects.
      def heap_graph = [command("heap"), WALKING]

      # Sentences on who holds objects and which class grew; none if nothing is kept that can explain so many bytes.
      def holders(bytes)
        kept = objects or return []
        path = kept.holder
        held = ", mostly in #{count(path.held_count)} #{path.held_class}" if path&.held_class
        graph = "In the heap graph of #{kept.graph_at&.strftime('%F %T')} UTC, #{path} holds "
        since = "In #{format('%.0f', kept.census_seconds || 0)} s between the last two censuses, "
        grown = kept.grown&.change.to_i
        [*("#{graph}#{size(path.accumulated_bytes)}#{held}." if path && path.accumulated_bytes >= bytes / 4),
         *("#{since}#{kept.grown.name} grew most, by #{size(grown)}." if grown >= MEBIBYTE)]
      end

      # A sentence on classes of C code whose objects hold memory that Ruby does not know of, if more objects came; nil
      # if none are known to have come.
      def unsized
        return unless (rows = objects&.unsized)&.any?

        came = rows.map { |row| "#{count(row.change)} #{row.name}" }.join(", ")
        "Between the last two censuses came #{came}: Ruby does not know how much " \
          "memory such objects hold. `#{command('heap', '--paths-to CLASS')}` shows " \
          "what keeps them."
      end

      # What the process's history shows; nil if it is absent or too short.
      def by_history = ("By its history: #{verdict.sentence}" if judged?)

      # A sentence on how much of the memory in use is garbage; if that is unknown, on how much may be garbage. nil if
      # the amount is too little to matter, as right after a collection.
      def unjudged
        bytes = garbage_bytes
        return if bytes.nil? || bytes < (garbage ? FLOOR : MEBIBYTE)
        return "#{size(bytes)} of what is in use is garbage that Ruby has not collected." if garbage

        "Up to #{size(bytes)} of what is in use may be garbage."
      end

      # What free memory may be for; nil if the collector is off.
      def headroom
        return if collector_off

        limits = environment.raised(:malloc).map { |text| " (#{text})" }.join
        "Ruby lets malloc grow by #{size(gc_room)} before Ruby collects " \
          "garbage#{limits}, so up to that much of this free memory may be normal " \
          "headroom between collections."
      end

      # Why nothing returns the free memory between used blocks; or, if these blocks may be garbage, what a collection
      # may do.
      def between_blocks(reason)
        return [unjudged, reason].compact.join(" ") unless unjudged && collect

        "#{unjudged} A collection may free the blocks that keep these pages resident."
      end

      # The remedy for free memory between used blocks, and its cost. If garbage may be what keeps these pages resident,
      # the remedy first collects the garbage.
      def after_collection(remedy, cost)
        return [remedy, cost] unless unjudged && collect

        ["#{collect}\n#{remedy}",
         "the first command takes a full GC, and shows whether garbage keeps these " \
         "pages resident; the second #{cost}"]
      end

      # A sentence: what Ruby goes by before it makes a full GC.
      def next_full
        return "None comes by itself: #{collector_off.first} was called." if collector_off

        limit, old, most = snapshot.gc.values_at(:oldmalloc_increase_bytes_limit, :old_objects, :old_objects_limit)
        due = unjudged_increase_bytes >= limit || (old && most && old >= most)
        return "The next GC that Ruby makes is a full one." if due

        variables = environment.raised(:malloc)
        raised = "; #{variables.join(' and ')} raised the limit" if variables.any?
        objects = " or #{count(most)} objects are old (now #{count(old)})" if old && most
        "The next one comes when malloc has grown by #{size(limit)}#{objects}#{raised}."
      end

      # "61 %"
      def percent(share) = format("%.0f %%", 100 * share)
    end
  end
end
