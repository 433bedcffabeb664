# frozen_string_literal: true

require_relative "../../value/runtime"

module Memscope
  class HeapGraph < Reading
    # The last graph that was taken on the page, or by `memscope heap --pid`, kept in the process that was walked, so
    # that any worker of a cluster can show it, and the doctor can name the holder.
    #
    # @api private
    module Kept
      # The maximum rows that are kept of each list.
      ROWS = 30
      private_constant :ROWS

      @lock = Mutex.new

      class << self
        # Takes one graph at a time in a process, since each child takes memory of its own.
        #
        # @param paths_to [String, nil] the name of a class
        # @param strings [Boolean]
        # @return [Array<HeapGraph>] the graph
        def take(paths_to: nil, strings: false)
          @lock.synchronize do
            # A browser waits for the graph, so the child gets less time than usual.
            [keep(HeapGraph.take(top: ROWS, paths_to: paths_to, strings: strings, deadline: 30))]
          end
        end

        # @param graph [HeapGraph] of this process
        # @return [HeapGraph] the same graph
        def keep(graph)
          path = graph.paths.first
          Runtime.current.readings[:holder] = [graph.at, path].freeze if path&.accumulated_bytes
          Runtime.current.keep(:heap_graph, graph.cut(ROWS))
          graph
        end
      end
    end
  end
end
