# frozen_string_literal: true

module Memscope
  class Workers < Reading
    # How Puma's workers have ended, which the kernel tells whoever has held a descriptor of them, although Puma's loop
    # reaps them (Linux 6.15). It is noted beside their boxes, for Memscope.postmortem.
    # @api private
    class Endings
      # Maximum processes that are held.
      MAX_HELD = 128

      def initialize
        @held = {}
        @lock = Mutex.new
      end

      # @param pid [Integer] of a worker that runs
      def hold(pid)
        return if @held.size >= MAX_HELD

        started = ProcessIdentity.of(pid).started
        descriptor = started && Native.hold_process(pid, started)
        @lock.synchronize { @held[Boxes.file_name(pid, started)] = descriptor } if descriptor
      end

      # Notes those that have ended. Called by the thread that samples the master, and by Puma's loop once it has forked
      # a successor.
      def note
        @lock.synchronize do
          @held.reject! do |name, descriptor|
            Native.process_status(descriptor)&.then { |status| Boxes.note(name, status) || true }
          end
        end
      end
    end
  end
end
