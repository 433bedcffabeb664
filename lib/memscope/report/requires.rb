# frozen_string_literal: true

module Memscope
  module Report
    # What files and gems cost: the totals, a table of gems, the tree of files.
    class RequiresPage < ReadingPage
      # Gems and files that are listed unless `limit` says how many.
      ROWS = 20
      # The most levels of the tree.
      DEPTH = 12
      private_constant :DEPTH

      # @param reading [Requires]
      # @param limit [Integer] gems that are listed, and files in the tree
      # @param display [Hash{Symbol => Object}] as for ReadingPage
      def initialize(reading, limit: ROWS, **display)
        super(reading, **display)
        @limit = limit
      end

      private

      def subject
        allocator = "#{@reading.allocator} serves malloc"
        [allocator, "YJIT #{state(@reading.yjit?)}", "Bootsnap #{state(@reading.bootsnap?)}"]
      end

      def state(switch) = switch ? "on" : "off"

      def sections = [lede, gems, tree]

      def reasons = sentences

      def lede
        ["  #{@reading.program}", "",
         "  #{mebibytes(@reading.bytes)} MiB in use: #{mebibytes(@reading.objects_bytes)} in objects, " \
         "#{mebibytes(@reading.malloc_bytes)} through malloc#{spread(@reading.spread)}",
         "  #{mebibytes(@reading.mapped_bytes)} MiB of mapped files are resident too#{spread(@reading.mapped_spread)}",
         "  #{files}; #{rest}"]
      end

      def files
        lazy = @reading.nodes.count(&:lazy?)
        "#{counted(@reading.nodes.size - 1, 'files')}#{", #{count(lazy)} of them by autoload" if lazy.positive?}"
      end

      def rest
        other = @reading.other_objects_bytes + @reading.other_malloc_bytes.to_i
        "#{size(@reading.nodes.first.bytes)} outside of them, #{size(other)} of no file"
      end

      def spread(share)
        return "" unless share

        " (#{@reading.runs.size} runs within #{format('%.2f', share * 100)} %)"
      end

      def gems
        alone = @reading.gems.any?(&:alone_bytes)
        headings = ["MiB", "objects", "malloc", "mapped", *("alone" if alone), "files", "gem"]
        @page.listing(headings, @reading.gems.first(@limit).map { |gem| gem_cells(gem, alone) } + remaining(alone))
      end

      def gem_cells(gem, alone)
        [mebibytes(gem.bytes), mebibytes(gem.objects_bytes), mebibytes(gem.malloc_bytes), mebibytes(gem.mapped_bytes),
         *(cell(gem.alone_bytes) if alone), count(gem.files), named(gem)]
      end

      def named(gem)
        notes = [("#{count(gem.lazy_files)} lazy" if gem.lazy_files.positive?),
                 ("for #{shared_with(gem)}" unless gem.required_by.empty?)].compact
        [gem.name, *("(#{notes.join('; ')})" unless notes.empty?)].join(" ")
      end

      def shared_with(gem)
        others = gem.required_by.size - 3
        [*gem.required_by.first(3), *("#{others} more" if others.positive?)].join(", ")
      end

      def remaining(alone)
        rest = @reading.gems.drop(@limit)
        return [] if rest.empty?

        [[:bytes, :objects_bytes, :malloc_bytes, :mapped_bytes].map { |name| mebibytes(rest.sum(&name)) },
         *(@page.unknown if alone), count(rest.sum(&:files)), counted(rest.size, "others")].flatten.then { |row| [row] }
      end

      # The files that cost most, with those that required them.
      def tree
        shown = largest
        rows = @page.branches([@reading.nodes.first]) { |node| shown.fetch(node.id, []) }.map do |branch, node|
          [mebibytes(@inclusive[node.id]), mebibytes(node.bytes), "#{branch.delete_prefix(branch[0, 3])}#{label(node)}"]
        end
        @page.listing(["MiB", "own", "file, with what it required first"], rows)
      end

      # @return [Hash{Integer => Array<Node>}] the children that are shown, the most costly first
      def largest
        @inclusive = Requires.inclusive(@reading.nodes)
        files = @reading.nodes.drop(1).max_by(@limit) { |node| @inclusive[node.id] }
        files.group_by(&:parent).transform_values { |nodes| nodes.sort_by { |node| -@inclusive[node.id] } }
      end

      def label(node)
        name = node.parent ? [node.gem, short(node.path)].compact.join(": ") : "the program"
        node.lazy? ? "#{name} (lazy)" : name
      end

      # A path below the directory that was searched for it, or below the gem's.
      def short(path)
        directory = @reading.load_path.select { |one| path.start_with?("#{one}/") }.max_by(&:length)
        (directory ? path.delete_prefix("#{directory}/") : path).gsub(/[[:cntrl:]]/, "?")
      end
    end
  end
end
