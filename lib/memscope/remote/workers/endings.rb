# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # How Puma's workers have ended, which the kernel tells whoever has held a descriptor of them, although Puma's loop
    # reaps them (Linux 6.15). It is noted beside their boxes, for Memscope.postmortem. Only the thread that samples the
    # master uses it, since it waits for the disk.
    # @api private
    class Endings
      # Maximum processes that are held.
      MAX_HELD = 128

      def initialize = @held = {}

      # @param pid [Integer] of a worker that runs
      def hold(pid)
        return if @held.size >= MAX_HELD

        started = ProcessIdentity.of(pid).started
        descriptor = started && Native.hold_process(pid, started)
        @held[Boxes.file_name(pid, started)] = descriptor if descriptor
      end

      # Notes those that have ended.
      def note
        @held.reject! do |name, descriptor|
          Native.process_status(descriptor)&.then { |status| Boxes.note(name, status) || true }
        end
      end
    end
  end
end
