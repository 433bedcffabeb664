# frozen_string_literal: true

module Memscope
  class Requires < Reading
    # A file that was loaded, or the program itself, with its cost: the memory in use at the end that was allocated
    # while this file was being loaded, but not while a file that it required was being loaded.
    class Node < Record
      # @return [Integer] bytes of objects and of malloc
      def bytes = objects_bytes + malloc_bytes
    end

    # A gem, with the cost of its own files.
    class GemCost < Record
      # @return [Symbol] the number by which a Diff sorts
      def self.weight = :bytes

      # @return [Integer] bytes of objects and of malloc
      def bytes = objects_bytes + malloc_bytes
    end
  end
end
