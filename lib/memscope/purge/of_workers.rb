# frozen_string_literal: true

require_relative "../reading"
require_relative "result"

module Memscope
  module Purge
    # What a purge of several workers of a server returned, worker by worker: what Memscope::Web answers in a cluster.
    class OfWorkers < Reading
      # What it returned in one of them.
      class Part < Record
        # @!attribute [r] index
        #   @return [Integer, nil] Puma's number of the worker
        field :index, :count
        # @!attribute [r] pid
        #   @return [Integer]
        field :pid, :count, null: false
        # @!attribute [r] result
        #   @return [Result, nil] nil where it did not purge, or did not say so in time
        field :result, Result
        # @!attribute [r] reason
        #   @return [String, nil] why there is no result
        field :reason, :string
      end

      # @return [String]
      def self.kind = "purge_of_workers"

      # @!method dry_run?
      #   @return [Boolean] whether it was only predicted
      field :dry_run, :boolean, null: false
      # @!attribute [r] returned_bytes
      #   @return [Integer, nil] by how much the RSS of those that answered fell, summed up; nil for a dry run, and
      #     where none answered
      field :returned_bytes, :signed_bytes
      # @!attribute [r] workers
      #   @return [Array<Part>] in the order in which they were asked
      field :workers, [Part], null: false

      # @return [String] a table for people; plain ASCII where the locale is not UTF-8
      def to_s
        require_relative "../report"
        require_relative "../report/worker_purges_table"
        Report::WorkerPurgesTable.new(self).to_s
      end

      # @api private
      # @return [Boolean] whether anything could be read
      def known? = workers.any?(&:result)
    end
  end
end
