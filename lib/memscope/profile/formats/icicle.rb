# frozen_string_literal: true

require_relative "flame_graph"
require_relative "../../requires"

module Memscope
  class Profile < Reading
    module Formats
      # A self-contained page that draws the cost of each file that a program loaded, below the file that required it.
      # It is the flame graph's page, with exact numbers.
      #
      # @api private
      class Icicle < FlameGraph
        # What the colours of files mean: the first three of a flame graph's.
        KEY = KINDS.first(3).to_h.freeze
        private_constant :KEY

        # What the page shows of a Requires.
        class Files
          include Report::Quantity

          # The maximum number of files in the table.
          FILES = 50
          private_constant :FILES

          # @param reading [Requires]
          def initialize(reading)
            @reading = reading
            @inclusive = Requires.inclusive(reading.nodes)
          end

          # @return [String]
          def noun = "Files"

          # @return [String]
          def summary
            "#{@reading.program}: #{size(@reading.bytes)} in use, #{size(@reading.objects_bytes)} in objects and " \
              "#{size(@reading.malloc_bytes)} through malloc, by the file that was being loaded"
          end

          # @return [String]
          def provenance
            switches = { "YJIT" => @reading.yjit?, "Bootsnap" => @reading.bootsnap? }
            states = switches.map { |name, on| "#{name} #{on ? 'on' : 'off'}" }
            other = size(@reading.other_objects_bytes + @reading.other_malloc_bytes.to_i)
            "#{@reading.allocator} serves malloc, #{states.join(', ')}, ruby #{@reading.ruby}. " \
              "#{other} belongs to no file."
          end

          # @return [Boolean]
          def difference? = false

          # @return [Boolean]
          def foldable? = false

          # @return [String]
          def hint = "Point at a file for its path and what it cost with those below it; click it to zoom."

          # @return [String]
          def inversion = "Invert: each file first"

          # @return [Hash{String => String}]
          def key = KEY

          # @return [String]
          def heading = "Files that cost most"

          # @return [String]
          def place = "file"

          # @return [Array<String>]
          def columns = ["MiB", "with what it required", "objects", "malloc"]

          # @return [Array<String>]
          def cells(node)
            [node.bytes, @inclusive[node.id], node.objects_bytes, node.malloc_bytes].map { |bytes| mebibytes(bytes) }
          end

          # @return [String]
          def name(node) = node.path

          # @return [String]
          def by(node) = [*node.gem, *("by autoload" if node.lazy?)].join(", ")

          # @return [Array<Node>] files that cost something
          def entries = @reading.nodes.select { |node| node.bytes.positive? }

          # @return [Array<Node>] the files of the table
          def largest = entries.max_by(FILES, &:bytes)

          # @return [Hash{Symbol => Object}] for the script: each file is a frame, below the files that required it
          def data
            frames = @reading.nodes.map { |node| [File.basename(node.path), colour(node), name(node)] }
            { difference: false, errors: false, exact: true, frames: frames,
              stacks: entries.map { |node| [lineage(node), node.bytes, 1, 0] } }
          end

          private

          def lineage(node) = node.parent ? [node.id, *lineage(@reading.nodes[node.parent])] : [node.id]

          # An index into FlameGraph's KINDS.
          def colour(node) = { "ruby" => 2, "application" => 0, nil => 0 }.fetch(node.gem, 1)
        end
        private_constant :Files

        # @param reading [Requires]
        def initialize(reading)
          super([])
          @parts = @drawn = [Files.new(reading)]
          @version = reading.memscope
        end

        private

        def title = "What each file costs"
      end
    end
  end
end
