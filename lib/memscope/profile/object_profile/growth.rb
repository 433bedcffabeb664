# frozen_string_literal: true

module Memscope
  module ObjectProfile
    # Which lines keep more and more objects. After each major GC, each line's survivors are counted: its objects that
    # have survived a major GC. A verdict needs more than EPOCHS counts.
    #
    # A line grows if the mean of the last third of its counts exceeds the mean of the first third by more than ERRORS
    # standard errors, both with and without the latest count. The counts of a line are estimates from the same samples,
    # so their mean has the error of one count. The difference of the two means is given the error that it would have if
    # the means were independent: an upper bound.
    #
    # @api private
    module Growth
      # The survivors of a line, and one standard error.
      Count = Struct.new(:objects, :error)

      # The fewest counts that are judged.
      EPOCHS = 10
      ERRORS = 3
      NONE = Count.new(0, 0).freeze
      private_constant :ERRORS, :NONE

      class << self
        # @param counts [Array<Hash{Object => Count}>] by line, the oldest first
        # @return [Array<Object>] the lines that grow, the one that grew most first
        def decide(counts)
          return [] if counts.size <= EPOCHS

          before = growing(counts[0...-1])
          growing(counts).slice(*before.keys).sort_by { |_line, objects| -objects }.map(&:first)
        end

        # @param body [Hash{Symbol => Object}] from Native.surviving_objects
        # @return [Hash{Array(String, Integer) => Count}] the survivors of each line that has enough samples for an
        #   estimate, by its path and number: as in an entry of Profile#by(:line)
        def count(body)
          body = body.dup
          lines = survivors(body.delete(:lines))
          windows = Profile::Shares::Windows.new(**body)
          lines.transform_values do |parts|
            Count.new(parts.sum(&:live_objects), Profile::Shares.error(parts, Profile::Shares::OBJECTS, windows))
          end
        end

        private

        # Parts of a line differ in the method or the block.
        def survivors(lines)
          parts = lines.group_by { |frames, *| place(frames) }
          parts.transform_values { |some| some.map { |_frames, *numbers| Profile::Shares::Part.new(*numbers) } }
               .select { |_place, some| some.sum(&:samples) >= Profile::Entry::ENOUGH_SAMPLES }
        end

        def place(frames)
          frames = frames.map do |path, label, lineno|
            Profile::Frame.capture({ kind: :ruby, name: label, path: path, lineno: lineno })
          end
          line = frames.find { |frame| Profile::Grouping.line?(frame) } || frames.first
          [line.path, line.lineno]
        end

        def growing(counts)
          third = counts.size / 3
          counts.last.keys.filter_map do |line|
            first, last = [counts.first(third), counts.last(third)].map { |part| mean(part, line) }
            growth = last.objects - first.objects
            [line, growth] if growth > ERRORS * Math.hypot(first.error, last.error)
          end.to_h
        end

        def mean(counts, line)
          found = counts.map { |count| count.fetch(line, NONE) }
          Count.new(found.sum(&:objects).fdiv(found.size), found.sum(&:error).fdiv(found.size))
        end
      end
    end
  end
end
