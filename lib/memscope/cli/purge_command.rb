# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope purge [LEVER...]`: returns memory of a process that listens, or of the memscope process itself.
    class PurgeCommand < Command
      declare most: Purge::LEVERS.size

      private

      def perform
        options = @given.slice(:dry_run, :gc)
        levers = @operands.map(&:to_sym)
        result = asking { other? ? other.call(:purge, levers: levers, **options) : Memscope.purge(*levers, **options) }
        note_own
        deliver_readings([result])
        result.before.rss_bytes ? FINE : INPUT_OUTPUT
      end
    end
  end
end
