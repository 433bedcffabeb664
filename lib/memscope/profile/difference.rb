# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # The growth of each place between two profiles of one process: later - earlier.
    #
    # For malloc's memory, errors are added in quadrature, as if the estimates were independent. That is an upper bound:
    # a block that is live in both profiles is the same sample in both, and cancels out. Unchanged stacks and their
    # errors are left out. For objects, the share of each window is known in both profiles, so errors are those of the
    # growth.
    class Difference < Reading
      include Sampled

      # @return [Symbol] the backend of both profiles
      field :backend, :symbol, null: false, one_of: %i[jemalloc imports objects]
      # @return [Integer, nil] the rate of both profiles; nil for objects
      field :rate_bytes, :count
      # @return [Float] time from the earlier profile to the later
      field :seconds, :number, null: false
      # @return [Integer] the later profile's current generation
      field :generation, :count, null: false
      # @return [Integer] all live bytes of the earlier profile
      field :earlier_live_bytes, :bytes, null: false
      # @return [Integer] all live bytes of the later profile
      field :later_live_bytes, :bytes, null: false
      # @return [String, nil] the application's directory, as of the later profile
      field :application_root, :string, sparse: true
      # @return [Symbol, nil] where `application_root` comes from: :bundler, :rails or :directory
      field :application_root_source, :symbol, one_of: %i[bundler rails directory], sparse: true
      # @return [Array<Frame>] the frames of all stacks
      field :frames, [Frame], null: false
      # @return [Array<Stack>] the stacks with their growth; unchanged ones are left out
      field :stacks, [Stack], null: false
      # @return [Integer] live bytes of the later profile minus those of the earlier
      field :live_bytes, :signed_bytes, null: false
      # @return [Integer] live samples of the later profile minus those of the earlier
      field :samples, :integer, null: false
      # @return [Integer] one standard error of `live_bytes`
      field :error_bytes, :bytes, null: false
      # @return [Integer, nil] the growth of the later profile's `own_bytes`
      field :own_bytes, :signed_bytes, sparse: true
      # @return [Integer, nil] the growth of the allocator's own count between the two profiles
      field :allocator_grown_bytes, :signed_bytes, sparse: true
      # @return [Integer, nil] the growth of the RSS between the two profiles
      field :rss_grown_bytes, :signed_bytes, sparse: true
      # @return [Integer, nil] live objects of the later profile minus those of the earlier; nil for malloc
      field :live_objects, :integer, sparse: true
      # @return [Integer, nil] one standard error of `live_objects`
      field :error_objects, :count, sparse: true
      # @return [Integer, nil] as of the later profile; nil for malloc
      field :windows, :count, sparse: true
      # @return [Integer, nil] as of the later profile; nil for malloc
      field :allocations, :count, sparse: true
      # @return [Float, nil] as of the later profile; nil for malloc
      field :windows_share, :number, sparse: true
      # @return [Float, nil] as of the later profile; nil for malloc
      field :equal_windows, :number, sparse: true

      # The fields that must be equal in both profiles for the profiles' numbers to be comparable.
      SAME = %i[pid backend rate_bytes].freeze
      # The fields that are simply subtracted.
      SUBTRACTED = %i[samples live_bytes live_objects own_bytes allocator_grown_bytes rss_grown_bytes].freeze
      # The fields that are as in the later profile.
      KEPT = %i[backend rate_bytes generation application_root application_root_source
                windows allocations windows_share equal_windows].freeze
      private_constant :SAME, :SUBTRACTED, :KEPT

      class << self
        # @return [String] "profile_difference"
        def kind = "profile_difference"

        # @param earlier [Profile]
        # @param later [Profile]
        # @return [Difference] in the later profile's envelope; its cost is zero, because nothing was read for it
        # @raise [ArgumentError] unless both have the same process, rate and backend
        def between(earlier, later)
          SAME.each { |field| check_same(field, earlier.public_send(field), later.public_send(field)) }
          growth = capture({ **KEPT.to_h { |field| [field, later.public_send(field)] },
                             **wholes(earlier, later), **matched(earlier, later),
                             reasons: reasons_of(earlier, later), cost: Cost.of(:T0) }, later.envelope)
          later.objects? ? growth.with_errors : growth
        end

        private

        def check_same(field, earlier, later)
          return if earlier == later

          given = "#{Field.excerpt(earlier)} in the earlier profile"
          raise Invalid.new(field, given, "#{later.inspect}, as in the later", call: "Memscope::Profile#-")
        end

        def wholes(earlier, later)
          { seconds: (later.at - earlier.at).to_f,
            earlier_live_bytes: earlier.live_bytes, later_live_bytes: later.live_bytes,
            **SUBTRACTED.to_h { |field| [field, change(earlier.public_send(field), later.public_send(field))] } }
        end

        def change(before, after) = before && after && (after - before)

        # Matches the stacks of both profiles. The same frame can have different indexes in them, and the same line
        # different libraries, if a gem or Bundler was loaded in between.
        def matched(earlier, later)
          frames = (later.frames + earlier.frames).uniq { |frame| key(frame) }
          ids = frames.each_with_index.to_h { |frame, index| [key(frame), index] }
          generations = common_generations(earlier, later)
          pairs = signed(later, 1, ids, generations) + signed(earlier, -1, ids, generations)
          grown = pairs.group_by(&:first).filter_map { |identity, group| growth(identity, group.map(&:last)) }
          { frames: frames, stacks: grown.map(&:first), error_bytes: Integer.sqrt(grown.sum(&:last)) }
        end

        # Objects' generations merge as a profile gets older, and a generation always begins at the first epoch whose
        # objects are not judged yet. Keeps the generations that begin at the same epoch in both profiles, or after the
        # earlier profile.
        def common_generations(earlier, later)
          return unless earlier.generations && later.generations

          later.generations.select { |first| first > earlier.epoch || earlier.generations.include?(first) }
        end

        def signed(profile, sign, ids, generations)
          indexes = profile.frames.map { |frame| ids.fetch(key(frame)) }
          profile.stacks.map { |stack| [identity(stack, indexes, generations), [stack, sign]] }
        end

        def key(frame) = [frame.kind, frame.name, frame.path, frame.lineno, (frame.library if frame.kind == :native)]

        def identity(stack, indexes, generations)
          generation = stack.generation
          generation = generations.reverse_each.find { |first| first <= generation } if generations
          { frames: indexes.values_at(*stack.frames).freeze, tag: stack.tag, thread: stack.thread,
            class_name: stack.class_name, generation: generation }
        end

        # The growth of one stack and the square of its error; nil if nothing changed.
        def growth(identity, signed)
          numbers = Stack::GROWING.to_h do |name|
            values = signed.map { |stack, sign| stack.public_send(name)&.*(sign) }
            [name, values.include?(nil) ? nil : values.sum]
          end
          return if numbers.values.all? { |number| number.nil? || number.zero? }

          squared = signed.sum { |stack, _sign| stack.error_bytes**2 }
          [{ **identity, **numbers, **Shares.growth(signed), error_bytes: Integer.sqrt(squared) }, squared]
        end

        def reasons_of(earlier, later)
          reasons = earlier.reasons.merge(later.reasons)
          return reasons if earlier.started_at == later.started_at

          { **reasons, started_at: "profiling was stopped and started again between the two profiles: older " \
                                   "allocations count as freed" }
        end
      end
    end
  end
end
