# frozen_string_literal: true

require_relative "merged"

module Memscope
  class Profile < Reading
    # "outer;inner 4096", a line for each stack.
    #
    # @api private
    class Collapsed
      # @param profile [Profile, Difference]
      def initialize(profile)
        @profile = profile
      end

      # @return [String]
      def to_s
        names = @profile.frames.map { |frame| name(frame) }
        lines = Hash.new(0)
        Merged.by_frames(@profile, &:live_bytes).each do |frames, bytes|
          stack = frames.reverse.map { |frame| names[frame] }
          lines[stack.empty? ? "[no frames]" : stack.join(";")] += bytes
        end
        lines.map { |stack, bytes| "#{stack} #{bytes}\n" }.join
      end

      private

      # What separates frames, and lines, is in no name.
      def name(frame) = frame.to_s.tr(";", ":").gsub(/\s+/, " ")
    end
  end
end
