# frozen_string_literal: true

require "json"

module Memscope
  class Profile < Reading
    # speedscope's own format: https://www.speedscope.app/file-format-schema.json
    # @api private
    Speedscope = Struct.new(:profile) do
      def to_s
        JSON.generate("$schema": "https://www.speedscope.app/file-format-schema.json", activeProfileIndex: 0,
                      name: "#{profile.objects? ? 'object' : 'malloc'} profile of process #{profile.pid}",
                      exporter: "memscope #{profile.memscope}",
                      shared: { frames: profile.frames.map { |frame| frame(frame) } }, profiles: profiles)
      end

      private

      def frame(one) = { name: one.name, file: one.path || one.library, line: (one.lineno if one.path) }.compact

      # Weights cannot be negative: shrinkage gets a profile of its own.
      def profiles
        growth = profile.difference?
        return [sampled("growth", &:live_bytes), sampled("shrinkage") { |stack| -stack.live_bytes }] if growth

        [sampled("live bytes", &:live_bytes), sampled("live objects", "none", &:live_objects),
         (sampled("allocated since start", &:allocated_bytes) if profile.allocations?)].compact
      end

      # Sums of stacks with the same frames: the format has no thread, tag or generation.
      def sampled(name, unit = "bytes")
        weights = profile.stacks.each_with_object(Hash.new(0)) { |stack, sums| sums[stack.frames] += yield(stack) }
        weights.select! { |_frames, weight| weight.positive? }
        { type: "sampled", name: name, unit: unit, startValue: 0, endValue: weights.values.sum,
          samples: weights.keys.map(&:reverse), weights: weights.values }
      end
    end
  end
end
