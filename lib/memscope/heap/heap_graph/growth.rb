# frozen_string_literal: true

module Memscope
  class HeapGraph < Reading
    # What a later heap dump has that an earlier one of the same process does not have: by class, by where it was
    # allocated, and by the paths that hold it. Of three dumps, an object is new if it is not in the first, is in the
    # second, and still is in the third: what was allocated between the first two and has stayed.
    #
    #   growth = Memscope::HeapGraph.growth("before.json", "after.json", "later.json")
    #   growth.classes.first.name  # => "Order"
    #   growth.paths.first.to_s    # => "Bus::HANDLERS → Array → Order"
    #
    # Only reachable objects count as new; `new_garbage_count` counts those that are garbage.
    class Growth < Reading
      # The objects of one class.
      class Row < Record
        # @return [String] as ClassRow#name
        field :name, :string, null: false, identity: true
        # @return [Integer] objects of the last dump minus those of the first, garbage included
        field :count, :integer, null: false
        # @return [Integer] bytes of the last dump's objects minus those of the first dump's, garbage included
        field :bytes, :signed_bytes, null: false
        # @return [Integer] objects of the last dump
        field :later_count, :count, null: false
        # @return [Integer] new objects
        field :new_count, :count, null: false
        # @return [Integer] their bytes
        field :new_bytes, :bytes, null: false
      end

      # @return [Array<String>] paths of the dumps, the first one first
      field :sources, :list, null: false
      # @return [Integer, nil] objects of the last dump minus those of the first, garbage included; nil, with a reason,
      #   if the dumps could not be compared
      field :total_count, :integer
      # @return [Integer, nil] bytes of the last dump's objects minus those of the first dump's, garbage included
      field :total_bytes, :signed_bytes
      # @return [Integer, nil] new objects
      field :new_count, :count
      # @return [Integer, nil] their bytes
      field :new_bytes, :bytes
      # @return [Integer, nil] objects of the last dump that would be new, but are garbage
      field :new_garbage_count, :count
      # @return [Integer, nil] their bytes
      field :new_garbage_bytes, :bytes
      # @return [Array<Row>] by the bytes of new objects or the growth in bytes, whichever is larger
      field :classes, [Row], null: false
      # @return [Array<Group>] the new objects by the line that allocated them, by bytes; empty, with a reason,
      #   unless allocations were traced
      field :sites, [Group], null: false
      # @return [Array<Path>] to the new objects through which all other new objects are reached. `accumulated_bytes`
      #   are the bytes of the object at the end of a path and of the new objects that are reached through it; the bytes
      #   of all paths add up to new_bytes
      field :paths, [Path], null: false
      # @return [Integer, nil] number of different paths; `paths` has the first of them
      field :path_count, :count

      class << self
        # @return [String] "heap_graph_growth"
        def kind = "heap_graph_growth"

        # @api private
        # @param paths [Array<String>] of two or three dumps
        # @param top [Integer]
        # @return [Growth]
        def read(paths, top:)
          body = opened(paths) { |files| Native.heap_growth(files.map(&:fileno), top) }
          body[:reasons][:names] = :names_from_code if body[:new_count]
          first, *, last = paths.map { |path| File.mtime(path) }
          body[:reasons][:sources] = "the first of these files was written last" if first > last
          capture(body.update(sources: paths.map { |path| File.path(path) }))
        end

        private

        def opened(paths, files = [], &block)
          return yield(files) if paths.empty?

          Dump::Source.open(paths.first) { |file| opened(paths.drop(1), [*files, file], &block) }
        end
      end

      # @api private
      # @return [Boolean] whether the dumps could be compared
      def known? = !new_count.nil?
    end
  end
end
