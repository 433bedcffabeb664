# frozen_string_literal: true

require "objspace"
require_relative "../growth_check"

module Memscope
  class GrowthCheck < Reading
    # Where what grows was allocated, and what holds it: runs the block in two more rounds, in which each allocation is
    # traced, and makes a heap graph for some of the classes.
    #
    # @api private
    class Origins
      ROUNDS = 2
      # The most places of a class, and of malloc.
      PLACES = 5
      # The most classes whose holder is looked for.
      HOLDERS = 3
      # How many objects of a place a path is looked for to.
      EXAMPLES = 100
      # Files whose own objects do not count.
      OWN = "#{File.expand_path('..', __dir__)}/".freeze
      # Functions of Ruby itself, which allocate the memory of its objects.
      BY_RUBY = /\((?:lib)?ruby[\d.-]*(?:\.so[\d.]*)?\)\z/
      NAME = Module.instance_method(:name)
      CLASS = Kernel.instance_method(:class)
      TO_S = Kernel.instance_method(:to_s)
      private_constant :ROUNDS, :PLACES, :HOLDERS, :OWN, :BY_RUBY, :NAME, :CLASS, :TO_S, :EXAMPLES

      # @return [Array<Grown>] what has grown, without what the options ignore
      attr_reader :grown
      # @return [Hash{Symbol => String}] why places or holders are missing
      attr_reader :reasons

      # @param options [Options]
      # @param rounds [Rounds]
      # @param ran_in [Symbol] :child or :process
      def initialize(options, rounds, ran_in)
        @options = options
        @rounds = rounds
        @child = ran_in == :child
        @reasons = {}
        @examples = Hash.new { |addresses, place| addresses[place] = [] }.compare_by_identity
        blocks = rounds.grown[Rounds::MALLOC]
        objects = of_objects(rounds.grown.except(Rounds::MALLOC))
        @grown = [*objects, (of_malloc(blocks, objects) if blocks)].compact
      end

      private

      def repeat = @rounds.repeat(ROUNDS * @options.iterations)

      # @return [Integer] of what was left by `repeat`
      def per_iteration(count) = @options.per_iteration(count.fdiv(ROUNDS))

      def of_objects(growth)
        growth = growth.except(Rounds::ALL) if growth.size > 1
        return [] if growth.empty?

        why_not = ObjectProfile.obstacle(RUBY_VERSION, ractors: :never, alive: Ractor.count)
        return untraced(growth, why_not) if why_not

        ObjectSpace.trace_object_allocations do
          repeat
          GC.start
          held(growth.map { |name, numbers| grown_class(name, numbers, places((name unless name == Rounds::ALL))) }.compact)
        end
      end

      def untraced(growth, why_not)
        @reasons[:places] = why_not
        growth.map { |name, numbers| body(:objects, name, numbers, []) }.then { |grown| held(grown) }
      end

      # nil if what is left of its growth, without ignored places, is allowed.
      def grown_class(name, numbers, places)
        judged = places.reject { |place| ignored?(place) }
        return if judged.size < places.size && per_iteration(judged.sum { |place| place[:count] }) <= @options.max

        @reasons[:places] ||= "Ruby code cannot reach objects of #{name}" if places.empty?
        body(:objects, name, numbers, judged.first(PLACES))
      end

      def body(layer, name, numbers, places)
        { layer: layer, name: (name unless name == Rounds::ALL), growth: numbers,
          per_iteration: numbers.map { |number| @options.per_iteration(number) }.min, places: places }
      end

      # @param name [String, nil] of a class; nil for all of them
      # @return [Array<Hash>] bodies of places, the one with most objects first
      def places(name)
        found = {}
        each_survivor(name) do |object, path, lineno|
          place = found[[path, lineno]] ||= { path: path, lineno: lineno, native: nil, count: 0, bytes: 0 }
          place[:count] += 1
          place[:bytes] += ObjectSpace.memsize_of(object)
          examples = @examples[place]
          examples << TO_S.bind_call(object)[/0x\h+(?=>\z)/].hex if examples.size < EXAMPLES
        end
        found.values.select { |place| per_iteration(place[:count]).positive? }.sort_by { |place| -place[:count] }
      end

      def each_survivor(name)
        ObjectSpace.each_object do |object|
          path = ObjectSpace.allocation_sourcefile(object)
          next if path.nil? || path.start_with?(OWN) || (name && name != name_of(object))

          yield object, path, ObjectSpace.allocation_sourceline(object)
        end
      end

      # As a census has it. A class can redefine `name`, and a BasicObject has no `class`.
      def name_of(object)
        own, *above = CLASS.bind_call(object).ancestors
        NAME.bind_call(own) || "#{above.grep(Class).filter_map { |one| NAME.bind_call(one) }.first} (anonymous subclass)"
      end

      # Those that are nearest to a root first: the others are often held by their objects.
      def held(grown)
        grown.sort_by { |one| one[:per_iteration] }.first(HOLDERS).each { |one| one[:held_by] = holder(one) }
        grown.sort_by { |one| [one[:held_by] ? one[:held_by].size : Float::INFINITY, -one[:per_iteration]] }
      end

      # @return [Array<String>, nil] the links of a path to one of the objects; without places, to most of the class
      def holder(one)
        return if one[:name].nil? && one[:places].empty?

        place = one[:places].first
        graph = place ? HeapGraph.to_addresses(@examples[place], place[:path]) : HeapGraph.take(paths_to: one[:name])
        @reasons[:held_by] = graph.reasons.values.join("; ") unless graph.known?
        graph.paths.max_by(&:count)&.links
      end

      def ignored?(place) = @options.ignored_place?(Place.capture(place.dup).to_s)

      def of_malloc(numbers, objects)
        places = callers
        lines = objects.flat_map { |one| one[:places].map { |place| place.values_at(:path, :lineno) } }
        judged = places.reject do |place|
          ignored?(place) || (lines.include?(place.values_at(:path, :lineno)) && BY_RUBY.match?(place[:native]))
        end
        return if judged.empty? && (places.any? || objects.any?) # memory of these objects, or ignored

        body(:malloc, nil, numbers, judged.first(PLACES))
      end

      # @return [Array<Hash>] bodies of the places whose blocks grow, the one with most first
      def callers
        MallocProfile.halt if @child
        profile = MallocProfile.record(rate: MallocProfile::EVERY_BLOCK, backend: :imports) { repeat_and_collect }
        entries = profile.by(:line).select { |entry| per_iteration(entry.live_objects) > @options.max }
        @reasons[:malloc_places] = "the blocks come from calls of malloc that cannot be patched" if entries.empty?
        entries.sort_by { |entry| -entry.live_objects }.map { |entry| place_of(entry) }
      rescue MallocProfile::Unavailable => e
        @reasons[:malloc_places] = e.message
        []
      end

      def repeat_and_collect
        repeat
        GC.start
      end

      def place_of(entry)
        { path: entry.path, lineno: entry.lineno, native: entry.native, count: entry.live_objects, bytes: entry.live_bytes }
      end
    end
    private_constant :Origins
  end
end
