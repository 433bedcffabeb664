# frozen_string_literal: true

module Memscope
  # The last two censuses and the last heap graph that a page or another process requested. They are kept in the process
  # that was counted, so that any worker of a cluster can show them, and the doctor can name the class that grew and
  # the path along which most memory accumulated.
  # @api private
  module LastReadings
    # The maximum rows that are kept of each list of a graph.
    ROWS = 30
    # Seconds for a graph's child: shorter than usual, since a browser waits.
    DEADLINE = 30

    @lock = Mutex.new

    def self.census(gc: false)
      census = Census.bounded(gc: gc)
      Runtime.current.readings[:class_growth] = most_grown(Runtime.current.kept(:censuses).last, census)
      Runtime.current.keep(:censuses, census, most: 2)
    end

    # Takes one graph at a time in a process, since each child takes memory of its own.
    def self.heap_graph(**given) = @lock.synchronize { keep(HeapGraph.take(top: ROWS, deadline: DEADLINE, **given)) }

    def self.keep(graph)
      path = graph.paths.first
      Runtime.current.readings[:holder] = [graph.at, path].freeze if path&.accumulated_bytes
      Runtime.current.keep(:heap_graph, graph.cut(ROWS))
      graph
    end

    def self.most_grown(earlier, later)
      return unless earlier&.known? && later.known?

      growth = later - earlier
      row = growth.by(:class).first
      [growth.seconds, (row if row&.change&.positive?), Census.unsized(growth).first(3)]
    end
    private_class_method :most_grown
  end
end
