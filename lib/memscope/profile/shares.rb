# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # The standard error of an estimate of objects, from the spread between the windows that were sampled: objects that
    # are allocated together are sampled together, so samples are not independent. The same arithmetic as
    # memscope_window_variance (ext/memscope/engine/sampling/object_groups.h), for any group of stacks.
    # @api private
    module Shares
      # The indexes, in a share, of its window's number, allocations, objects and bytes.
      WINDOW, ALLOCATIONS, OBJECTS, BYTES = *0..3

      # As much of a stack, and of a profile, as `error` needs.
      Part = Struct.new(:samples, :live_objects, :shares)
      Windows = Struct.new(:windows, :allocations, :windows_share, :equal_windows, keyword_init: true)

      module_function

      # One standard error of the sum of the stacks' numbers (OBJECTS or BYTES). The stacks are of a profile of objects,
      # or of the difference of two.
      def error(stacks, number, profile)
        sums = sums(stacks, number)
        samples = stacks.sum { |stack| stack.samples.abs }
        # In a difference, new samples and an equal number of old samples that are gone sum to 0, although their objects
        # differ.
        samples = 1 if samples.zero? && sums[1].positive?
        return 0 unless samples.positive?

        squares = [(sums.first**2).fdiv(samples), (squares(stacks) if number == BYTES)].compact.max
        objects = stacks.sum(&:live_objects).abs
        # The share of the objects that are not samples themselves.
        unsampled = objects > samples ? 1 - samples.fdiv(objects) : 0
        Math.sqrt(variance(sums, squares * unsampled, profile) * (samples + 1) / samples).round
      end

      # The growth of each window's share, and an upper bound of its error. `signed` has each stack of the later profile
      # with 1, and of the earlier one with -1.
      def growth(signed)
        return {} unless signed.first.first.shares

        { shares: differences(signed).reject { |share| share[OBJECTS].zero? && share[BYTES].zero? },
          spread_bytes: Integer.sqrt(signed.sum { |stack, sign| sign * (stack.spread_bytes.to_i**2) }.abs),
          error_objects: Integer.sqrt(signed.sum { |stack, _sign| stack.error_objects**2 }) }
      end

      # The sum of the squares of the bytes that each sample adds: a large object among small ones weighs most.
      def squares(stacks) = stacks.sum { |stack| stack.spread_bytes.to_i**2 }

      def differences(signed)
        shares = signed.flat_map { |stack, sign| stack.shares.map { |share| [sign, *share] } }
        shares.group_by { |_sign, window, allocations| [window, allocations] }.map do |window, some|
          [*window, some.sum { |sign, *share| sign * share[OBJECTS] }, some.sum { |sign, *share| sign * share[BYTES] }]
        end
      end

      # Σx, Σx² and Σxn over windows, where a window adds x, and stands for n allocations.
      def sums(stacks, number)
        windows = stacks.flat_map(&:shares).group_by { |share| share[WINDOW] }.values
        sums = windows.map { |shares| shares.sum { |share| share[number] } }
        [sums.sum, sums.sum { |sum| sum**2 }, windows.zip(sums).sum { |some, sum| some.first[ALLOCATIONS] * sum }]
      end

      # At least that of independent samples.
      def variance(sums, independent, profile)
        seen = profile.windows_share
        [independent, ((1 - seen) * clustered(*sums, profile)) + (seen * independent)].max
      end

      # Variance by the spread between windows: each one's addition, compared with its proportional share of the sum.
      def clustered(sum, squares, products, profile)
        return 0 unless [profile.windows - 1, profile.allocations, profile.equal_windows].all?(&:positive?)

        equal = profile.equal_windows
        rate = sum.fdiv(profile.allocations)
        ((equal / [equal - 1, 0.5].max)**4) *
          (squares - (2 * rate * products) + (((rate * profile.allocations)**2) / equal))
      end
    end
  end
end
