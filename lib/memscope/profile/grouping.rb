# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # Sums over stacks that have something in common.
    # @api private
    class Grouping
      # The place that a stack is counted under. Stacks with equal keys are counted together.
      Place = Struct.new(:name, :path, :lineno, :key)

      NO_FRAMES = "[no frames]"
      NO_CALLER = "[no line of the application]"
      # The paths of code whose file is unknown: its caller counts instead. Since Ruby 3.3, eval's code has the path of
      # the file that called eval.
      ANONYMOUS = ["(eval)", "<compiled>"].freeze
      # Ruby's allocation functions (in gc.c, and since 3.4 in gc/default), which are on the stack of every
      # allocation that Ruby makes.
      ALLOCATING = /\A(?:(?:ruby|rb)_(?:gc_impl_|sized_)?|objspace_)x?(?:m|c|re)alloc/
      # Kinds of native functions, in order of preference: outside the runtime; named and not an allocation function;
      # named; any. A stack is counted under the nearest function of the first of these kinds that it contains.
      PREFERRED = [->(frame) { !Libraries.runtime?(frame.library) },
                   ->(frame) { frame.named? && !frame.name.match?(ALLOCATING) },
                   :named?.to_proc,
                   ->(_frame) { true }].freeze
      # An entry's numbers; each is nil if it is unknown for any of the entry's stacks.
      NUMBERS = (Stack::GROWING - %i[allocated_objects freed_objects]).freeze

      def initialize(profile)
        @frames = profile.frames
        @stacks = profile.stacks
        @profile = profile
        # Each frame is classified once, rather than once for each stack that contains it. Memory can be charged to
        # @lines.
        @files = @frames.map(&:file?)
        @lines = @frames.map { |frame| frame.file? && !frame.name.match?(Libraries::TAGS) }
        @callers = @frames.map { |frame| application?(frame) }
        @states = @frames.map { |frame| frame.kind == :state }
        @native = @frames.any? { |frame| frame.kind == :native }
        @natives = PREFERRED.map { |wanted| @frames.map { |frame| frame.kind == :native && wanted.call(frame) } }
      end

      def entries(grouping)
        places = @stacks.map do |stack|
          place = public_send(:"by_#{grouping}", stack)
          place.is_a?(String) ? Place.new(place) : place
        end
        groups = @stacks.zip(places).group_by { |_stack, place| place.key || [place.name, place.path] }.values
        bytes = groups.map { |pairs| pairs.sum { |stack, _place| stack.live_bytes } }
        whole = whole(bytes)
        groups.zip(bytes).map { |pairs, live| entry(pairs, share(live, whole), grouping) }
              .sort_by { |entry| [-entry.live_bytes, entry.path.to_s, entry.lineno.to_i, entry.name] }
      end

      # A line is one place, whether it runs in a method or in a block of that method.
      def by_line(stack) = line(stack)&.then { |frame| place(frame) } || without_line(stack)

      def by_caller(stack)
        frame = caller(stack)
        return place(frame) if frame

        stack.frames.empty? ? NO_FRAMES : first(stack, @states)&.name || NO_CALLER
      end

      def by_method(stack) = line(stack)&.then { |frame| Place.new(frame.name, frame.path) } || without_line(stack)

      def by_native(stack)
        frame = native(stack) || leaf(stack) or return NO_FRAMES
        Place.new(frame.name, frame.kind == :native ? frame.library : frame.path)
      end

      def by_library(stack)
        native = first(stack, @natives.first)
        return Libraries.of_object(native.library) || native.name if native

        line = line(stack)
        return library_of_line(line) if line

        leaf = first(stack, @states) || leaf(stack) or return NO_FRAMES
        return leaf.name if leaf.kind == :state

        (leaf.kind == :native ? Libraries.of_object(leaf.library) : leaf.library) || "[no library]"
      end

      def by_stack(stack)
        @texts ||= @frames.map(&:to_s)
        frame = line(stack)
        names = stack.frames.reverse.map { |index| @texts[index] }
        Place.new(names.empty? ? NO_FRAMES : names.join(";"), frame&.path, frame&.lineno)
      end

      def by_class(stack) = stack.class_name || "[no class]"

      def by_generation(stack) = "generation #{stack.generation}"

      def by_tag(stack) = stack.tag || "[no tag]"

      def by_thread(stack) = stack.thread || "[no name]"

      private

      def application?(frame)
        frame.file? && library_of_line(frame) == Libraries::APPLICATION && !ANONYMOUS.include?(frame.path)
      end

      def library_of_line(frame) = frame.library || Libraries.of_line(frame.path)

      def place(frame) = Place.new(frame.name, frame.path, frame.lineno, [frame.path, frame.lineno])

      def entry(pairs, share, grouping)
        place = pairs.first.last
        stacks = pairs.map(&:first)
        Entry.capture({ name: heaviest(pairs) { |_stack, one| one.name }, path: place.path, lineno: place.lineno,
                        **NUMBERS.to_h { |number| [number, Quantity.total(stacks.map(&number))] }, share: share,
                        **@profile.errors_of(stacks),
                        native: heaviest(pairs) { |stack, _place| native_name(native(stack)) },
                        callers: %i[line method].include?(grouping) ? called(stacks) { |stack| caller(stack) } : [],
                        lines: grouping == :caller ? called(stacks) { |stack| line(stack) } : [],
                        generations: stacks.group_by(&:generation)
                                           .transform_values { |some| some.sum(&:live_bytes) }.sort.to_h })
      end

      # Live bytes by the line that the block chooses, of stacks whose allocating line is not the application's own.
      def called(stacks)
        sums = stacks.each_with_object(Hash.new(0)) do |stack, all|
          line = line(stack)
          caller = caller(stack)
          all[yield(stack).place] += stack.live_bytes if line && caller && line.place != caller.place
        end
        sums.reject { |_place, bytes| bytes.zero? }.sort_by { |place, bytes| [-bytes.abs, place] }
      end

      # The name that accounts for most bytes: a line can have several, of a method and of a block in it.
      def heaviest(pairs)
        weights = pairs.each_with_object(Hash.new(0)) { |pair, all| all[yield(*pair)] += pair.first.live_bytes.abs }
        weights.except(nil).min_by { |name, weight| [-weight, name] }&.first
      end

      # In a difference, shares refer to the growth, without the shrinkage.
      def counts?(bytes) = !@profile.difference? || bytes.positive?

      def whole(bytes) = bytes.select { |live| counts?(live) }.sum

      def share(bytes, whole) = ((whole.zero? ? 0.0 : bytes.fdiv(whole)) if counts?(bytes))

      def line(stack) = nearest(stack, @lines) || nearest(stack, @files)

      def caller(stack) = nearest(stack, @callers)

      # A state, such as a frame for which there was no room, ends the search: a line beyond it may not be the nearest.
      def nearest(stack, wanted)
        index = stack.frames.find { |frame| wanted[frame] || @states[frame] }
        @frames[index] if index && wanted[index]
      end

      def native(stack) = (@natives.reduce(nil) { |found, wanted| found || first(stack, wanted) } if @native)

      def leaf(stack) = stack.frames.first&.then { |index| @frames[index] }

      def without_line(stack) = (first(stack, @states) || first(stack, @natives.last) || leaf(stack))&.name || NO_FRAMES

      def first(stack, wanted) = stack.frames.find { |frame| wanted[frame] }&.then { |index| @frames[index] }

      def native_name(frame)
        file = frame&.library && File.basename(frame.library)
        file.nil? || frame.name.start_with?(file) ? frame&.name : "#{frame.name} (#{file})"
      end
    end
  end
end
