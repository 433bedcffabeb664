# frozen_string_literal: true

module Memscope
  class Check < Reading
    # Finds where growth was allocated, and its retainers. Repeats the work in two more rounds, which are measured. If
    # malloc grew, each of its blocks is sampled, too. Makes heap graphs for some of the classes.
    # @api private
    class Origins
      ROUNDS = 2
      # At most this many lines are reported for a class, and for malloc.
      PLACES = 5
      # Retainers are searched for at most this many classes.
      HOLDERS = 3
      # Functions of Ruby itself, which allocate the memory of its objects.
      BY_RUBY = /\((?:lib)?ruby[\d.-]*(?:\.so[\d.]*)?\)\z/
      # Functions of Ruby before 3.3 that move the memory of objects to malloc, in or after a garbage collection.
      MOVING = /\A(?:rb_postponed_job_flush|\w*transient_heap\w*) /

      # `grown` has the bodies of growth that the options do not ignore. `reasons` are for missing places or
      # retainers.
      attr_reader :grown, :reasons

      def initialize(options, rounds)
        @options = options
        @rounds = rounds
        @reasons = {}
        names = rounds.names
        @grown = names.empty? ? [] : found(names)
      end

      private

      def found(names)
        blocks = repeated(names.include?(Rounds::MALLOC))
        classes = (names - [Rounds::MALLOC]).filter_map { |name| grown_class(name) }
        [*held(classes), (of_malloc(blocks) if names.include?(Rounds::MALLOC))].compact
      end

      # The lines that keep blocks of malloc, or nil if they are unknown.
      def repeated(malloc)
        return measure unless malloc

        MallocProfile.record(rate: MallocProfile::EVERY_BLOCK, backend: :imports) { measure }.by(:line)
      rescue Unavailable => e
        @reasons[:malloc] = e.message
        measure unless @survivors
        nil
      end

      def measure
        @survivors = []
        @survivors = Measurement.survivors { repeat }.reject { |one| one.path&.start_with?(Profile::Libraries::MEMSCOPE) }
      rescue Unavailable => e
        @reasons[:places] = e.message
        repeat unless @repeated
      end

      def repeat
        @repeated = true
        @rounds.repeat(ROUNDS * @options.iterations)
        sleep(@options.pause) if @rounds.released?
      end

      # `count` is the growth in all rounds of `repeat`.
      def per_iteration(count) = @options.per_iteration(count.fdiv(ROUNDS))

      # Returns nil if the class's growth outside ignored places is within the limit.
      def grown_class(name)
        places = places(name)
        judged = places.reject { |place| ignored?(place) }
        return if judged.size < places.size && per_iteration(judged.sum(&:count)) <= @options.max

        @reasons[:places] ||= WORDS[:no_places] if places.empty?
        body(name, judged)
      end

      # With at least one object per iteration, the largest count first.
      def places(name)
        groups = survivors(name).group_by { |one| [one.path, one.lineno] }
        above(0, groups.map { |line, some| place(*line, some.sum(&:objects), some.sum(&:bytes)) })
      end

      def above(limit, places)
        places.select { |place| per_iteration(place.count) > limit }.sort_by { |place| -place.count }
      end

      def survivors(name) = name == Rounds::ALL ? @survivors : @survivors.select { |one| one.name == name }

      def place(path, lineno, count, bytes, native = nil)
        Place.capture({ path: path, lineno: lineno, native: native, count: count, bytes: bytes })
      end

      def body(name, places) = @rounds.body(name, places.first(PLACES))

      # Finds retainers of some classes. Sorts the classes nearest to a root first: their objects often retain those of
      # the others.
      def held(grown)
        grown.sort_by { |one| one[:per_iteration] }.first(HOLDERS).each { |one| one[:held_by] = holder(one) }
        grown.sort_by { |one| [one[:held_by] ? one[:held_by].size : Float::INFINITY, -one[:per_iteration]] }
      end

      # The links of a path to many of the objects, without those of memscope, which holds an application.
      def holder(one)
        name = one[:name] or return
        addresses = addresses(name, one[:places].first)
        graph = addresses ? HeapGraph.to_objects(:addresses, addresses, name) : HeapGraph.take(paths_to: name)
        @reasons[:held_by] = graph.reasons.values.join("; ") unless graph.known?
        links = graph.paths.max_by(&:count)&.links
        links&.drop((links.rindex { |link| link.start_with?("Memscope::Check") } || -1) + 1)
      end

      def addresses(name, place)
        place && survivors(name).find { |one| [one.path, one.lineno] == [place.path, place.lineno] }&.addresses
      end

      # Growth of malloc is confirmed by a place that keeps its blocks: YJIT, too, takes blocks for a while, but not at
      # one line of the program.
      def of_malloc(entries)
        return (body(Rounds::MALLOC, []) if @rounds.names.one?) unless entries

        places = entries.map { |one| place(one.path, one.lineno, one.live_objects, one.live_bytes, one.native) }
        judged = above(@options.max, places).reject { |place| ignored?(place) || of_an_object?(place) }
        body(Rounds::MALLOC, judged) if judged.any?
      end

      # True if Ruby itself allocated the block for an object: at a line that also leaves objects behind, or at any line
      # while it moved an object's memory.
      def of_an_object?(place)
        return false unless BY_RUBY.match?(place.native)

        @lines ||= @survivors.map { |one| line(one) }
        MOVING.match?(place.native) || @lines.include?(line(place))
      end

      # A measurement names a file as it was loaded, a malloc profile by its real path.
      def line(place) = [place.path && Profile::Libraries.real(place.path), place.lineno]

      def ignored?(place) = @options.ignored_place?(place.to_s)
    end
  end
end
