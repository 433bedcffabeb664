# frozen_string_literal: true

require_relative "../../report"
require_relative "../refusal"
require_relative "page"

module Memscope
  module Web
    module Pages
      # The allocator's size classes: of all arenas, or with arena=N of one.
      #
      # @api private
      class SizeClasses < Page
        shows "Size classes", :size_classes

        # @return [Memscope::SizeClasses]
        # @raise [Refusal]
        def reading
          @reading ||= read(:size_classes, arena)
        rescue ArgumentError => e
          raise Refusal.new(400, "#{e.message.sub(/\A.*?arena: given/, 'arena: given')}.")
        end

        # @return [String]
        def text = Memscope::Report.render(reading, unicode: true)

        # @return [Array<Integer>] those that can be chosen
        def arenas = read(:arenas).map(&:index)

        # @return [Integer, nil]
        # @raise [Refusal]
        def arena
          given = @request.query["arena"]&.last.to_s
          return if given.empty?

          if given.match?(/\A\d{1,4}\z/)
            given.to_i
          else
            raise(Refusal.new(400, "arena: given #{given[0, 20].inspect}, " \
                                   "allowed: the number of an arena."))
          end
        end

        # @return [Array<SizeClass>] those that hold anything
        def held
          @held ||= reading.reject { |one| (one.in_use_bytes || 0).zero? && (one.slack_bytes || 0).zero? }
        end

        # @return [Array(Float, Float)] in use and slack, as shares of the largest class
        def shares(one)
          most = held.map { |size_class| whole(size_class) }.max
          most.zero? ? [0.0, 0.0] : [(one.in_use_bytes || 0).fdiv(most), (one.slack_bytes || 0).fdiv(most)]
        end

        private

        def whole(one) = (one.in_use_bytes || 0) + (one.slack_bytes || 0)
      end
    end
  end
end
