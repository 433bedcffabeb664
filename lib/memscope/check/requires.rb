# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # The cost of each file and gem that a Ruby program loads, in objects, malloc and mapped libraries. `memscope requires
  # -- COMMAND` takes this reading.
  #
  # Costs are *in load order*: each object and each block of malloc that is in use at the end is charged to the
  # innermost file during whose loading it was allocated. Garbage costs nothing. So the costs of all files, and the
  # memory that belongs to no file, sum to the program's part of the ledger's rows of live slots and of malloc in use,
  # to the byte. A gem that others require too is charged where it was first required. memscope's own records do not
  # count.
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

    # @return [Integer, nil] rise of objects and malloc, or nil if malloc's is unknown
    def bytes = malloc_bytes && (objects_bytes + malloc_bytes)

    # @return [Integer] bytes of objects and malloc of a node, with those of the files that it required
    def inclusive_bytes(node) = Requires.inclusive(nodes).fetch(node.id)

    # @api private
    def known? = !nodes.empty?

    class << self
      # @api private
      # @param nodes [Array<Node>] in an order in which each file follows the file that required it
      def inclusive(nodes)
        sums = nodes.to_h { |node| [node.id, node.bytes] }
        nodes.reverse_each { |node| sums[node.parent] += sums[node.id] if node.parent }
        sums
      end

      # @api private
      # @param again [Array<Array(Integer, Integer)>] requires of files that were already loaded: the ids of the
      #   requiring file and of the required one
      def gems(nodes, again)
        callers = callers(nodes, again)
        costs = nodes.select(&:parent).group_by { |node| gem_of(node) }.map do |gem, own|
          { name: gem, files: own.size, lazy_files: own.count(&:lazy?), objects_bytes: own.sum(&:objects_bytes),
            malloc_bytes: own.sum(&:malloc_bytes), mapped_bytes: own.sum(&:mapped_bytes), required_by: callers[gem] }
        end
        costs.sort_by { |cost| [-(cost[:objects_bytes] + cost[:malloc_bytes]), cost[:name]] }
      end

      private

      def gem_of(node) = node.gem || "(elsewhere)"

      # The other gems that require each gem.
      def callers(nodes, again)
        pairs = nodes.select(&:parent).map { |node| [node.parent, node.id] } | again
        pairs.each_with_object(Hash.new { |callers, gem| callers[gem] = [] }) do |pair, callers|
          from, to = nodes.values_at(*pair)
          callers[gem_of(to)] |= [gem_of(from)] unless from.parent.nil? || gem_of(from) == gem_of(to)
        end
      end
    end
  end
end
