# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # Checks what no field says alone of a profile that came from anywhere.
    #
    # @api private
    class Consistency
      # @param profile [Profile, Difference]
      # @param where [String] the path to it, for messages
      # @param signed [Boolean] whether its numbers may be negative
      def initialize(profile, where, signed: false)
        @profile = profile
        @where = where
        @signed = signed
      end

      # @return [void]
      # @raise [ArgumentError] naming what is inconsistent, what was given and what is allowed
      def check
        @profile.stacks.each_with_index { |stack, index| check_stack(stack, "stacks[#{index}]") }
        check_sum(:live_bytes)
        check_sum(:samples)
      end

      private

      def check_stack(stack, name)
        allowed = 0...@profile.frames.size
        wrong = stack.frames.find { |frame| !(frame.is_a?(Integer) && allowed.cover?(frame)) }
        refuse("#{name}.frames", wrong, "indexes into frames, 0 to #{allowed.size - 1}") unless wrong.nil?
        refuse("#{name}.frames", nil, "indexes into frames") if stack.frames.include?(nil)
        return if @signed

        Stack::GROWING.each do |number|
          value = stack.public_send(number)
          refuse("#{name}.#{number}", value, "an Integer of 0 or more") if value&.negative?
        end
      end

      def check_sum(number)
        sum = @profile.stacks.sum(&number)
        given = @profile.public_send(number)
        refuse(number, given, "#{sum}, the sum of the stacks'") unless given == sum
      end

      def refuse(what, given, allowed)
        raise ArgumentError, "#{@where}: #{what}: given #{given.inspect}, allowed: #{allowed}"
      end
    end
  end
end
