# frozen_string_literal: true

module Memscope
  class HeapGraph < Reading
    Record.declare(__FILE__)

    # The objects that a later heap dump of a process has and an earlier one does not have: by class, by allocating
    # line, and by the paths that hold them. Of three dumps, an object is new if it is not in the first, is in the
    # second, and still is in the third.
    #
    #   growth = Memscope::HeapGraph.growth("before.json", "after.json", "later.json")
    #   growth.classes.first.name  # => "Order"
    #   growth.paths.first.to_s    # => "Bus::HANDLERS → Array → Order"
    #
    # Only reachable objects count as new. `new_garbage_count` counts those that are garbage.
    class Growth < Reading
      # @return [String] "heap_graph_growth"
      def self.kind = "heap_graph_growth"

      # @api private
      def self.read(paths, top:)
        body = opened(paths) { |files| Native.heap_growth(files.map(&:fileno), top) }
        body[:reasons][:names] = :names_from_code if body[:new_count]
        first, *, last = paths.map { |path| File.mtime(path) }
        body[:reasons][:sources] = "the first of these files was written last" if first > last
        capture(body.update(sources: paths.map { |path| File.path(path) }))
      end

      def self.opened(paths, files = [], &block)
        return yield(files) if paths.empty?

        File.open(paths.first, "rb") { |file| opened(paths.drop(1), [*files, file], &block) }
      end
      private_class_method :opened
    end
  end
end
