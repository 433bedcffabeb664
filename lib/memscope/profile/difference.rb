# frozen_string_literal: true

require_relative "../profile"

module Memscope
  class Profile < Reading
    # The growth of each place between two profiles of one process: later - earlier.
    #
    # Errors are added in quadrature, as if the estimates were independent. That is an upper bound: a block that is live
    # in both profiles is the same sample in both, and cancels out. Unchanged stacks and their errors are left out.
    class Difference < Reading
      include Sampled

      # @return [Symbol] the backend of both profiles
      field :backend, :symbol, null: false, one_of: %i[jemalloc imports]
      # @return [Integer] the rate of both profiles
      field :rate_bytes, :count, null: false
      # @return [Float] time from the earlier profile to the later
      field :seconds, :number, null: false
      # @return [Integer] the later profile's current generation
      field :generation, :count, null: false
      # @return [Integer] all live bytes of the earlier profile
      field :earlier_live_bytes, :bytes, null: false
      # @return [Integer] all live bytes of the later profile
      field :later_live_bytes, :bytes, null: false
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

      # These must be equal in both profiles for their numbers to be comparable.
      SAME = %i[pid backend rate_bytes].freeze
      private_constant :SAME

      class << self
        # @return [String] "profile_difference"
        def kind = "profile_difference"

        # @param earlier [Profile]
        # @param later [Profile]
        # @return [Difference] in the later profile's envelope; its cost is zero, because nothing was read for it
        # @raise [TypeError] unless both are profiles
        # @raise [ArgumentError] unless both have the same process, rate and backend
        def between(earlier, later)
          unless earlier.instance_of?(Profile)
            raise TypeError, "#{later.class} - #{earlier.class}: only a profile can be subtracted from a profile"
          end

          SAME.each { |field| check_same(field, earlier.public_send(field), later.public_send(field)) }
          capture({ backend: later.backend, rate_bytes: later.rate_bytes, generation: later.generation,
                    **wholes(earlier, later), **matched(earlier, later),
                    reasons: reasons_of(earlier, later), cost: Cost.of(:T0) }, later.envelope)
        end

        private

        def check_same(field, earlier, later)
          return if earlier == later

          raise ArgumentError, "Memscope::Profile#-: #{field}: given #{Field.excerpt(earlier)} in the earlier " \
                               "profile, allowed: #{later.inspect}, as in the later"
        end

        def wholes(earlier, later)
          { seconds: (later.at - earlier.at).to_f, samples: later.samples - earlier.samples,
            earlier_live_bytes: earlier.live_bytes, later_live_bytes: later.live_bytes,
            live_bytes: later.live_bytes - earlier.live_bytes }
        end

        # Matches the stacks of both profiles, in which the same frame can have different indexes.
        def matched(earlier, later)
          ids = {}
          pairs = [[later, 1], [earlier, -1]].flat_map do |profile, sign|
            indexes = profile.frames.map { |frame| ids[frame] ||= ids.size }
            profile.stacks.map { |stack| [identity(stack, indexes), [stack, sign]] }
          end
          grown = pairs.group_by(&:first).filter_map { |identity, group| growth(identity, group.map(&:last)) }
          { frames: ids.keys, stacks: grown.map(&:first), error_bytes: Integer.sqrt(grown.sum(&:last)) }
        end

        def identity(stack, indexes)
          { frames: indexes.values_at(*stack.frames).freeze, tag: stack.tag, thread: stack.thread,
            generation: stack.generation }
        end

        # The growth of one stack and the square of its error; nil if nothing changed.
        def growth(identity, signed)
          numbers = Stack::GROWING.to_h do |name|
            values = signed.map { |stack, sign| stack.public_send(name)&.*(sign) }
            [name, values.include?(nil) ? nil : values.sum]
          end
          return if numbers.values.all? { |number| number.nil? || number.zero? }

          squared = signed.sum { |stack, _sign| stack.error_bytes**2 }
          [{ **identity, **numbers, error_bytes: Integer.sqrt(squared) }, squared]
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
