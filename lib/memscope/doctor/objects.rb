# frozen_string_literal: true

require_relative "../census"
require_relative "../heap_graph"

module Memscope
  class Diagnosis < Reading
    # Who holds objects, and which class grew, according to the heap graph and the censuses that were taken on the
    # process's pages, or over its socket, and that the process keeps.
    class Objects < Record
      # @return [Time, nil] UTC, when the heap graph was taken; nil without one
      field :graph_at, :time
      # @return [String, nil] the path to the object in which most memory has accumulated
      field :holder, :string
      # @return [Integer, nil] bytes that have accumulated in it
      field :holder_bytes, :bytes
      # @return [String, nil] the class with most of these bytes
      field :held_class, :string
      # @return [Integer, nil] how many objects of that class it holds
      field :held_count, :count
      # @return [Float, nil] seconds between the two last censuses; nil without two
      field :census_seconds, :number
      # @return [String, nil] the class that grew most between them
      field :grown_class, :string
      # @return [Integer, nil] bytes by which it grew
      field :grown_bytes, :signed_bytes
      # @return [Integer, nil] objects by which it grew
      field :grown_count, :integer

      class << self
        # Loads nothing, so that it works in a trap handler: a module that is not loaded keeps nothing.
        #
        # @api private
        # @return [Objects, nil] nil if nothing is kept
        def kept
          body = { **holder, **growth }
          capture(body) unless body.empty?
        end

        private

        def holder
          at, path = HeapGraph::Kept.holder unless HeapGraph.autoload?(:Kept)
          return {} unless path

          { graph_at: (at.to_f * 1000).round, holder: path.to_s, holder_bytes: path.accumulated_bytes,
            held_class: path.held_class, held_count: path.held_count }
        end

        def growth
          seconds, row = Census::Kept.grown unless Census.autoload?(:Kept)
          return {} unless row

          { census_seconds: seconds, grown_class: row.name, grown_bytes: row.memsize_bytes,
            grown_count: row.count }
        end
      end
    end
  end
end
