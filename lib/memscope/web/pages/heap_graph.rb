# frozen_string_literal: true

module Memscope
  module Web
    module Pages
      # The last heap graph that was taken on this page or by `memscope heap --pid`, kept in the process that was
      # walked: by which paths objects are held, which objects and classes hold most, and what is garbage. The query may
      # choose other orders (classes=objects, holders=own).
      #
      # @api private
      class HeapGraph < Page
        # Each column's heading and field, by the word in the query.
        CLASSES = { "retained" => ["Retained MiB", :retained_bytes], "own" => ["Own MiB", :bytes],
                    "objects" => ["Objects", :count] }.freeze
        HOLDERS = { "retained" => ["Retained MiB", :retained_bytes], "own" => ["Own MiB", :bytes],
                    "objects" => ["Objects retained", :dominated_count] }.freeze
        # What opens a dump, by its format.
        READERS = { perfetto: "Perfetto (ui.perfetto.dev)", heapsnapshot: "Chrome's DevTools",
                    objspace: "heapy, heap-profiler, sheap" }.freeze
        # Paths that are shown at once; their holders are the tiles of the treemap.
        FIRST = 10

        # @return [Memscope::HeapGraph, nil] nil if none was taken
        def latest = (@latest ||= [@calls.kept_heap_graph(place)]).first

        # @return [Memscope::HeapGraph]
        # @raise [HttpError] if none was taken
        def reading
          latest or raise HttpError.new(404, "No heap graph was taken in #{place}. Take one on the page /heap, or " \
                                             "with memscope heap --pid #{place.pid}.")
        end

        # @return [String] the class in the form's field, from the query or the posted form; empty: any
        def paths_to = @form["paths_to"]&.last.to_s

        # @return [String] a key of CLASSES
        # @raise [HttpError]
        def classes_by = choice("classes", CLASSES.keys, "retained")

        # @return [String] a key of HOLDERS
        # @raise [HttpError]
        def holders_by = choice("holders", HOLDERS.keys, "retained")

        # @return [Array<ClassRow>] in the order of the query
        def classes = sorted(latest.retained, CLASSES.fetch(classes_by).last)

        # @return [Array<ClassRow>] the largest of the garbage
        def garbage = sorted(latest.garbage, :bytes, size: :bytes).first(10)

        # @return [Array<Path>] without memscope's own, unless paths to a class were asked for
        def paths = latest.paths_to ? latest.paths : latest.paths.reject(&:own?)

        # @return [Array<Dominator>] in the order of the query
        def holders = sorted(latest.dominators, HOLDERS.fetch(holders_by).last)

        # @return [Integer, nil] bytes shown for a path: what its object has accumulated; or, if paths to a class were
        #   asked for, what its objects retain
        def bytes(path) = path.accumulated_bytes || path.retained_bytes

        # What has accumulated in one object is not counted in another, so tiles do not overlap.
        #
        # @return [Array<Treemap::Tile>] the holders with the most memory, then everything else; empty if paths to
        #   a class were asked for
        def tiles
          holders = paths.first(FIRST).select(&:accumulated_bytes)
          return [] if holders.empty?

          rest = [(latest.reachable_bytes || 0) - holders.sum(&:accumulated_bytes), 0].max
          [*holders.map.with_index(1) { |path, mark| tile(path, mark) },
           Treemap::Tile.new("rest", nil, nil, "Everything else", rest),
           Treemap::Tile.new("garbage", nil, nil, "Garbage", latest.garbage_bytes || 0)].select { |one| one.bytes.positive? }
        end

        private

        def tile(path, mark)
          Treemap::Tile.new("holder", mark.to_s, "holder-#{mark}", path.to_s, path.accumulated_bytes)
        end

        # Without memscope's own rows, and without rows that are 0.0, unless all are.
        def sorted(rows, field, size: :retained_bytes)
          rows = rows.reject { |row| row.respond_to?(:own?) ? row.own? : Terms.own?(row.name) }
          large(rows, size).sort_by.with_index { |row, index| [-row.public_send(field), index] }
        end
      end
    end
  end
end
