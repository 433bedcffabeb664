# frozen_string_literal: true

require "objspace"

module Memscope
  class GrowthCheck < Reading
    # Where growth was allocated, and what holds it. Repeats the work in two more rounds, which trace the allocation of
    # each object; if malloc grew, also in a further two rounds, which sample each block of malloc. Makes heap graphs
    # for some of the classes.
    #
    # @api private
    class Origins
      ROUNDS = 2
      # At most this many lines are reported for a class, and for malloc.
      PLACES = 5
      # The most classes whose holders are looked for.
      HOLDERS = 3
      # A heap graph looks for at most this many objects of one class and line.
      EXAMPLES = 100
      # Functions of Ruby itself, which allocate the memory of its objects.
      BY_RUBY = /\((?:lib)?ruby[\d.-]*(?:\.so[\d.]*)?\)\z/
      # Functions of Ruby before 3.3 that move the memory of objects to malloc, in or after a garbage collection.
      MOVING = /\A(?:rb_postponed_job_flush|\w*transient_heap\w*) /
      private_constant :ROUNDS, :PLACES, :HOLDERS, :EXAMPLES, :BY_RUBY, :MOVING

      # @return [Array<Grown>] what has grown, without what the options ignore
      attr_reader :grown
      # @return [Hash{Symbol => String}] why places or holders are missing
      attr_reader :reasons

      # @param options [Options]
      # @param rounds [Rounds] that have run
      # @param ran_in [Symbol] :child or :process
      def initialize(options, rounds, ran_in)
        @options = options
        @rounds = rounds
        @child = ran_in == :child
        @reasons = {}
        names = rounds.names
        @grown = names.empty? ? [] : [*of_objects(names - [Rounds::MALLOC]), of_malloc].compact
      end

      private

      def repeat
        @rounds.repeat(ROUNDS * @options.iterations)
        sleep(@options.pause) if @rounds.released?
        Native.clear_stack
        Native.collect_garbage
      end

      # @return [Integer] a count of what `repeat` has left, per iteration
      def per_iteration(count) = @options.per_iteration(count.fdiv(ROUNDS))

      def of_objects(names)
        traced do |survivors|
          @survivors = survivors
          held(names.filter_map { |name| grown_class(name) })
        end
      end

      # No garbage collection moves the survivors before their holders are found.
      def traced
        why_not = ObjectProfile.obstacle
        @reasons[:places] = why_not if why_not
        return yield({}) if why_not

        Survivors.trace do
          repeat
          @reasons[:places] = Reasons.sentence(:ractor_ended_counting) if Survivors.ended
          Rounds.without_gc { yield Survivors.read(EXAMPLES) }
        end
      end

      # Returns nil if the class's growth outside ignored places is within the limit.
      def grown_class(name)
        places = places(name)
        judged = places.reject { |place| ignored?(place) }
        return if judged.size < places.size && per_iteration(judged.sum(&:count)) <= @options.max

        @reasons[:places] ||= "no line keeps as many, or Ruby code cannot reach the objects" if places.empty?
        body(name, judged)
      end

      # @return [Array<Place>] with at least one object per iteration, the place with the most first
      def places(name)
        found = name == Rounds::ALL ? places_of_all : @survivors.fetch(name, {}).keys
        found.select { |place| per_iteration(place.count).positive? }.sort_by { |place| -place.count }
      end

      def places_of_all
        @survivors.values.flat_map(&:keys).group_by { |place| [place.path, place.lineno] }.map do |(path, lineno), some|
          Place.capture({ path: path, lineno: lineno, native: nil, count: some.sum(&:count), bytes: some.sum(&:bytes) })
        end
      end

      def body(name, places) = @rounds.body(name, places.first(PLACES))

      # Finds the holders of some classes. Sorts the classes nearest to a root first: their objects often hold those of
      # the others.
      def held(grown)
        grown.sort_by { |one| one[:per_iteration] }.first(HOLDERS).each { |one| one[:held_by] = holder(one) }
        grown.sort_by { |one| [one[:held_by] ? one[:held_by].size : Float::INFINITY, -one[:per_iteration]] }
      end

      # @return [Array<String>, nil] the links of a path to many of the objects
      def holder(one)
        addresses = @survivors.dig(one[:name], one[:places].first)
        return unless addresses || one[:name]

        graph = addresses ? HeapGraph.to_addresses(addresses, one[:name]) : HeapGraph.take(paths_to: one[:name])
        @reasons[:held_by] = graph.reasons.values.join("; ") unless graph.known?
        graph.paths.max_by(&:count)&.links
      end

      def of_malloc
        return unless @rounds.grown.key?(Rounds::MALLOC)

        places = callers or return (body(Rounds::MALLOC, []) if @rounds.grown.size == 1)
        judged = places.reject { |place| ignored?(place) || of_an_object?(place) }
        body(Rounds::MALLOC, judged) if judged.any?
      end

      # @return [Boolean] whether Ruby itself allocated the block for an object: at a line that also leaves objects
      #   behind, or when moving an object's memory, at whatever line runs then
      def of_an_object?(place)
        return false unless BY_RUBY.match?(place.native)

        @lines ||= @survivors.values.flat_map(&:keys).map { |one| [real(one.path), one.lineno] }
        MOVING.match?(place.native) || @lines.include?([real(place.path), place.lineno])
      end

      # ObjectSpace names a file as it was loaded, a malloc profile by its real path.
      def real(path)
        path && File.realpath(path)
      rescue SystemCallError
        path
      end

      # Growth of malloc is confirmed by a place that keeps its blocks: YJIT, too, takes blocks for a while, but not at
      # one line of the program.
      #
      # @return [Array<Place>, nil] with more blocks than are allowed, the place with the most first; nil if unknown
      def callers
        profile = MallocProfile.record(rate: MallocProfile::EVERY_BLOCK, backend: :imports) { repeat }
        entries = profile.by(:line).select { |entry| per_iteration(entry.live_objects) > @options.max }
        entries.sort_by { |entry| -entry.live_objects }.map { |entry| place_of(entry) }
      rescue Memscope::Unavailable => e
        @reasons[:malloc] = e.message
        nil
      end

      def place_of(entry)
        Place.capture({ path: entry.path, lineno: entry.lineno, native: entry.native,
                        count: entry.live_objects, bytes: entry.live_bytes })
      end

      def ignored?(place) = @options.ignored_place?(place.to_s)
    end
    private_constant :Origins
  end
end
