# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # The standard error of an estimate of objects, from the spread between the windows that were sampled: objects that
    # are allocated together are sampled together, so samples are not independent. The same arithmetic as
    # memscope_window_variance (ext/memscope/engine/sampling/object_groups.h), for any group of stacks.
    #
    # @api private
    module Shares
      # The indexes, in a share, of its window's number, allocations, objects and bytes.
      WINDOW = 0
      ALLOCATIONS = 1
      OBJECTS = 2
      BYTES = 3

      module_function

      # @param stacks [Array<Stack>] of a profile of objects, or of the difference of two
      # @param number [Integer] OBJECTS or BYTES
      # @param profile [Profile, Difference] the one that the stacks are from
      # @return [Integer] one standard error of the sum of the stacks' numbers
      def error(stacks, number, profile)
        samples = stacks.sum { |stack| stack.samples.abs }
        return 0 unless samples.positive?

        added = by_window(stacks, number)
        independent = independent(stacks, samples, added.sum(&:last))
        seen = profile.windows_share
        variance = [independent, ((1 - seen) * clustered(added, profile)) + (seen * independent)].max
        Math.sqrt(variance * (samples + 1) / samples).round
      end

      # @param signed [Array<Array(Stack, Integer)>] a stack of the later profile with 1, of the earlier with -1
      # @return [Hash{Symbol => Object}] the growth of each window's share, and an upper bound of its error
      def growth(signed)
        return {} unless signed.first.first.shares

        { shares: differences(signed).reject { |share| share[OBJECTS].zero? && share[BYTES].zero? },
          error_objects: Integer.sqrt(signed.sum { |stack, _sign| stack.error_objects**2 }) }
      end

      # @return [Array<Array(Integer, Integer, Integer, Integer)>] the growth of each window's share
      def differences(signed)
        sums = {}
        signed.each do |stack, sign|
          stack.shares.each do |window, allocations, objects, bytes|
            sum = sums[window] ||= [window, allocations, 0, 0]
            sum[OBJECTS] += sign * objects
            sum[BYTES] += sign * bytes
          end
        end
        sums.values
      end

      # @return [Array<Array(Integer, Integer)>] for each window, its allocations and the sum of what it adds
      def by_window(stacks, number)
        sums = {}
        stacks.each do |stack|
          stack.shares.each do |share|
            sum = sums[share[WINDOW]] ||= [share[ALLOCATIONS], 0]
            sum[1] += share[number]
          end
        end
        sums.values
      end

      # The variance from the spread between windows: what each adds, compared with its proportional part of the sum.
      def clustered(added, profile)
        return 0 if profile.windows < 2

        equal = profile.equal_windows
        rate = added.sum(&:last).fdiv(profile.allocations)
        squares = added.sum { |allocations, sum| (sum**2) - (2 * rate * allocations * sum) }
        ((equal / [equal - 1, 0.5].max)**4) * (squares + (((rate * profile.allocations)**2) / equal))
      end

      # The variance of a sum of that many independent samples, as a lower bound.
      def independent(stacks, samples, sum)
        objects = stacks.sum(&:live_objects).abs
        objects > samples ? (sum**2).fdiv(samples) * (1 - samples.fdiv(objects)) : 0
      end
      private_class_method :differences, :by_window, :clustered, :independent
    end
  end
end
