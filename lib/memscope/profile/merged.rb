# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # Stacks of one list of frames as one: by thread, tag and generation a format may know nothing of.
    #
    # @api private
    module Merged
      module_function

      # @param profile [Profile, Difference]
      # @yieldparam stack [Stack]
      # @yieldreturn [Integer, nil] its number
      # @return [Hash{Array<Integer> => Integer}] by frames, in order of appearance; without those of 0
      def by_frames(profile)
        sums = profile.stacks.each_with_object(Hash.new(0)) { |stack, all| all[stack.frames] += yield(stack) || 0 }
        sums.reject { |_frames, sum| sum.zero? }
      end
    end
  end
end
