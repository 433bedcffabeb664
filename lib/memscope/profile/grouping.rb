# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # Puts stacks together that have something in common.
    #
    # @api private
    class Grouping
      # Where stacks are counted; all of one key together.
      Place = Struct.new(:name, :path, :lineno, :key)

      NO_FRAMES = "[no frames]"
      # What puts a tag on others: nobody's line as long as theirs is there.
      TAGS = /\b(?:Memscope(?:::MallocProfile)?\.tag(?:_name)?|Memscope::(?:Rack|Sidekiq)Tags#\w+)\z/
      # Ruby's own way to malloc, which is under all that it allocates: in gc.c, and since 3.4 in gc/default.
      ALLOCATING = /\A(?:(?:ruby|rb)_(?:gc_impl_)?|objspace_)x?(?:m|c|re)alloc/
      # The native function that a stack is counted under is the nearest of the first kind that it has: none that
      # allocates for someone else, one of Ruby's that has a name, any.
      PREFERRED = [->(frame) { !Libraries.runtime?(frame.library) },
                   ->(frame) { frame.named? && !frame.name.match?(ALLOCATING) },
                   :named?.to_proc,
                   ->(_frame) { true }].freeze
      private_constant :NO_FRAMES, :TAGS, :ALLOCATING, :PREFERRED

      # The numbers of stacks that were put together.
      class Sum
        NUMBERS = (Stack::GROWING - %i[allocated_objects freed_objects]).freeze
        private_constant :NUMBERS

        attr_reader :numbers

        def initialize
          @numbers = NUMBERS.to_h { |name| [name, 0] }
          @error_squared = 0
          @names = Hash.new(0)
          @natives = Hash.new(0)
          @generations = Hash.new(0)
        end

        # A number that is not known of one is not known of all.
        def add(stack, name, native)
          @numbers.each { |number, sum| @numbers[number] = sum && stack.public_send(number)&.+(sum) }
          @error_squared += stack.error_bytes**2
          weight = stack.live_bytes.abs
          @names[name] += weight
          @natives[native] += weight if native
          @generations[stack.generation] += stack.live_bytes
        end

        def error_bytes = Integer.sqrt(@error_squared)

        # The name that most bytes are under: a line may be in a method and in a block of it.
        def name = heaviest(@names)

        def native = heaviest(@natives)

        def generations = @generations.sort.to_h

        private

        def heaviest(weights) = weights.min_by { |name, weight| [-weight, name] }&.first
      end

      # @param profile [Profile, Difference]
      def initialize(profile)
        @frames = profile.frames
        @stacks = profile.stacks
        @difference = profile.difference?
        classify
      end

      # @param grouping [Symbol]
      # @return [Array<Entry>] the largest first
      def entries(grouping)
        sums = {}
        @stacks.each do |stack|
          place = public_send(:"by_#{grouping}", stack)
          place = Place.new(place) if place.is_a?(String)
          (_place, sum) = sums[place.key || [place.name, place.path]] ||= [place, Sum.new]
          sum.add(stack, place.name, native_name(native(stack)))
        end
        whole = whole(sums.each_value.map(&:last))
        sums.values.map { |place, sum| entry(place, sum, whole) }.sort_by { |entry| order(entry) }
      end

      # @!group Where a stack is counted

      # A line is the same whether it is in a method or in a block of it.
      #
      # @param stack [Stack]
      # @return [Place, String]
      def by_line(stack)
        frame = line(stack)
        return without_line(stack) unless frame

        Place.new(frame.name, frame.path, frame.lineno, [frame.path, frame.lineno])
      end

      # @param stack [Stack]
      # @return [Place, String]
      def by_method(stack)
        frame = line(stack)
        frame ? Place.new(frame.name, frame.path) : without_line(stack)
      end

      # @param stack [Stack]
      # @return [Place, String]
      def by_native(stack)
        frame = native(stack) || leaf(stack) or return NO_FRAMES
        Place.new(frame.name, frame.kind == :native ? frame.library : frame.path)
      end

      # @param stack [Stack]
      # @return [String]
      def by_library(stack)
        native = foreign(stack)
        return Libraries.of_object(native.library) || native.name if native

        line = line(stack)
        return line.library || Libraries.of_line(line.path) if line

        state(stack)&.name || library_of(leaf(stack))
      end

      # @param stack [Stack]
      # @return [Place]
      def by_stack(stack)
        @texts ||= @frames.map(&:to_s)
        frame = line(stack)
        names = stack.frames.reverse.map { |index| @texts[index] }
        Place.new(names.empty? ? NO_FRAMES : names.join(";"), frame&.path, frame&.lineno)
      end

      # @param stack [Stack]
      # @return [String]
      def by_generation(stack) = "generation #{stack.generation}"

      # @param stack [Stack]
      # @return [String]
      def by_tag(stack) = stack.tag || "[no tag]"

      # @param stack [Stack]
      # @return [String]
      def by_thread(stack) = stack.thread || "[no name]"

      # @!endgroup

      private

      # What is asked of each frame for every stack that it is in.
      def classify
        @files = @frames.map(&:file?)
        @lines = @frames.map { |frame| frame.file? && !frame.name.match?(TAGS) }
        @states = @frames.map { |frame| frame.kind == :state }
        @natives = PREFERRED.map { |wanted| @frames.map { |frame| frame.kind == :native && wanted.call(frame) } }
      end

      def entry(place, sum, whole)
        live_bytes = sum.numbers[:live_bytes]
        Entry.capture({ name: sum.name, path: place.path, lineno: place.lineno, **sum.numbers,
                        error_bytes: sum.error_bytes, share: share(live_bytes, whole), native: sum.native,
                        generations: sum.generations })
      end

      # Of a difference what grew, without what shrank.
      def whole(sums)
        bytes = sums.map { |sum| sum.numbers[:live_bytes] }
        @difference ? bytes.select(&:positive?).sum : bytes.sum
      end

      def share(bytes, whole)
        return if @difference && !bytes.positive?

        whole.zero? ? 0.0 : bytes.fdiv(whole)
      end

      def order(entry) = [-entry.live_bytes, entry.path.to_s, entry.lineno.to_i, entry.name]

      def line(stack) = first(stack, @lines) || first(stack, @files)

      def state(stack) = first(stack, @states)

      def foreign(stack) = first(stack, @natives.first)

      def native(stack)
        @natives.each { |wanted| first(stack, wanted)&.then { |frame| return frame } }
        nil
      end

      def leaf(stack) = stack.frames.empty? ? nil : @frames[stack.frames.first]

      def without_line(stack)
        frame = state(stack) || first(stack, @natives.last) || leaf(stack)
        frame ? frame.name : NO_FRAMES
      end

      def library_of(leaf)
        return NO_FRAMES unless leaf

        (leaf.kind == :native ? Libraries.of_object(leaf.library) : leaf.library) || "[no library]"
      end

      def first(stack, wanted)
        index = stack.frames.find { |frame| wanted[frame] }
        index && @frames[index]
      end

      def native_name(frame)
        return unless frame

        file = frame.library && File.basename(frame.library)
        file.nil? || frame.name.start_with?(file) ? frame.name : "#{frame.name} (#{file})"
      end
    end
  end
end
