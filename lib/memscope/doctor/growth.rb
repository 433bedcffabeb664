# frozen_string_literal: true

module Memscope
  class Diagnosis < Reading
    # How fast a process grows, by the readings that it has taken of itself since it booted (by `plugin :memscope` or
    # Memscope::Workers).
    class Growth < Record
      # @return [Integer] growth of RSS in bytes per hour: the median of the slopes between the readings
      field :bytes_per_hour, :signed_bytes, null: false
      # @return [Integer, nil] the same for the later half of the readings; nil while there are too few
      field :recent_bytes_per_hour, :signed_bytes
      # @return [Hash{Symbol => Integer}] the growth in bytes per hour of each top row of the ledger
      field :rows_per_hour, :hash, null: false
      # @return [Integer, nil] RSS now minus RSS at boot
      field :since_boot_bytes, :signed_bytes
      # @return [Time] UTC, when the process booted
      field :booted_at, :time, null: false
      # @return [Integer] number of readings
      field :samples, :count, null: false

      # @api private
      # @param worker [Worker, nil] the process's report on itself
      # @return [Growth, nil] nil before there are enough readings
      def self.of(worker)
        return unless worker&.rss_bytes_per_hour

        rss = worker.rss_bytes
        at_boot = worker.rss_at_boot_bytes
        capture({ bytes_per_hour: worker.rss_bytes_per_hour,
                  recent_bytes_per_hour: worker.rss_recent_bytes_per_hour,
                  rows_per_hour: worker.rows_bytes_per_hour || {},
                  since_boot_bytes: rss && at_boot && (rss - at_boot),
                  booted_at: (worker.booted_at.to_f * 1000).round, samples: worker.samples })
      end

      # @return [Integer, nil] the lower of the two rates, so that a process that grew only while it warmed up does not
      #   count as growing; nil until there are enough readings for the recent rate
      def lasting_per_hour = recent_bytes_per_hour && [bytes_per_hour, recent_bytes_per_hour].min
    end
  end
end
