# frozen_string_literal: true

module Memscope
  class GrowthCheck < Reading
    # Counts what is alive and in use in other processes, all of them together, through their listeners, and finds the
    # holders of what grows.
    #
    # @api private
    class Listeners
      # The most classes whose holder is looked for.
      HOLDERS = 3
      # From outside, no line is known.
      PLACES = "the lines that allocated it are known in the process itself only"
      # Only a thread itself can flush its cache.
      CACHED = "blocks in jemalloc's thread caches count as in use, some hundreds per thread: growth of less than " \
               "that in a round is not seen; it is with more requests"
      private_constant :HOLDERS, :PLACES, :CACHED

      # @param clients [Array<Client>]
      # @param gc [Boolean] whether garbage is collected there before each count
      def initialize(clients, gc:)
        @clients = clients
        @gc = gc
      end

      # @param malloc [Boolean] whether blocks of malloc are counted
      # @return [Count] sums over the processes; what one of them does not know is nil
      # @raise [Unavailable]
      def read(malloc: true)
        counts = @clients.map { |client| count(client, malloc) }
        objects = counts.map(&:objects).reduce { |sum, some| sum.merge!(some) { |_name, one, other| one + other } }
        numbers = %i[slot_bytes blocks malloc_bytes rss_bytes].map { |name| sum(counts.map(&name)) }
        Count.new(objects, *numbers)
      end

      # @param rounds [Rounds] that have run
      # @return [Found] what has grown, with the holders of the classes that grew least; empty unless garbage was
      #   collected, since otherwise what has grown may be garbage
      def find(rounds)
        return Found.new([], {}) unless @gc

        found = rounds.bodies
        reasons = { places: (PLACES if found.any?), malloc: (CACHED if @cached) }.compact
        found.select { |one| one[:name] }.min_by(HOLDERS) { |one| one[:per_iteration] }.each do |one|
          graph = graph(one[:name])
          reasons[:held_by] = graph.reasons.values.join("; ") unless graph.known?
          one[:held_by] = graph.paths.max_by(&:count)&.links
        end
        Found.new(found, reasons)
      end

      private

      def count(client, malloc)
        census = client.call(:census, gc: @gc)
        raise Unavailable, Counts.uncounted(census.reasons) unless census.known?

        @fullest = {} if client.equal?(@clients.first)
        objects = census.classes.to_h { |row| [row.name, row.count] }
        objects.each { |name, count| @fullest[name] = [count, client] if count > @fullest.fetch(name, [0]).first }
        blocks, malloc_bytes = malloc(client) if malloc
        Count.new(objects, census.total_slot_bytes, blocks, malloc_bytes, client.call(:rss))
      end

      # The ledger needs `gc` again: the census has left garbage, whose memory would count.
      def malloc(client)
        rows = client.call(:ledger, deep: true, gc: @gc).rows.map(&:to_h)
        totals = client.call(:snapshot).jemalloc or return Counts.of_glibc(rows)
        @cached = true
        [Counts.of_jemalloc(totals)&.first, rows.find { |row| row[:id] == :malloc }.dig(:detail, :in_use_bytes)]
      end

      def sum(numbers) = (numbers.sum unless numbers.include?(nil))

      # Taken in the process with most objects of that class.
      def graph(name) = @fullest.fetch(name).last.call(:heap_graph, paths_to: name)
    end
    private_constant :Listeners
  end
end
