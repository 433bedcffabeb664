# frozen_string_literal: true

module Memscope
  module Report
    # The costs of files and gems: the totals, a table of gems, the files that cost most.
    class RequiresPage < ListPage
      # How many of the gems that require a gem are named.
      CALLERS = 2
      SIZES = %i[bytes objects_bytes malloc_bytes mapped_bytes].freeze

      private

      def subject
        allocator = "#{@reading.allocator} serves malloc"
        [allocator, "YJIT #{state(@reading.yjit?)}", "Bootsnap #{state(@reading.bootsnap?)}"]
      end

      def state(switch) = switch ? "on" : "off"

      def sections = [lede, gems, costly]

      def lede
        all, objects, malloc, mapped = SIZES.map { |field| mebibytes(@reading.public_send(field)) }
        [@page.wrapped(@reading.program), "", say(:required, bytes: all, objects: objects, malloc: malloc),
         say(:mapped, bytes: mapped), files]
      end

      def files
        number = @reading.nodes.count(&:lazy?)
        lazy = text(:lazy_files, number: count(number)) if number.positive?
        other = @reading.other_objects_bytes + @reading.other_malloc_bytes.to_i
        say(:files, files: counted(@reading.nodes.size - 1, "files"), lazy: lazy,
                    outside: size(@reading.nodes.first.bytes), other: size(other))
      end

      def gems
        rows = summed(@reading.gems, "others").map do |name, some|
          sizes = SIZES.map { |field| mebibytes(some.sum(&field)) }
          [*sizes, count(some.sum(&:files)), name.is_a?(String) ? name : named(name)]
        end
        @page.listing(%w[MiB objects malloc mapped files gem], rows)
      end

      def named(gem)
        more = gem.required_by.size - CALLERS
        callers = [*gem.required_by.first(CALLERS), *("#{more} more" if more.positive?)]
        noted(gem.name, ("#{count(gem.lazy_files)} lazy" if gem.lazy_files.positive?),
              ("for #{callers.join(', ')}" if callers.any?), joint: "; ")
      end

      # The text with notes in parentheses, as far as there are any.
      def noted(text, *notes, joint: ", ") = notes.any? ? "#{text} (#{notes.compact.join(joint)})" : text

      # The files that cost most themselves; "MiB" includes the files that they were the first to require.
      def costly
        inclusive = Requires.inclusive(@reading.nodes)
        most = @reading.nodes.drop(1).max_by(@limit) { |node| [node.bytes, -node.id] }
        rows = most.map { |node| [mebibytes(inclusive[node.id]), mebibytes(node.bytes), label(node)] }
        @page.listing(%w[MiB own file], rows)
      end

      def label(node)
        parent = @reading.nodes[node.parent]
        noted([node.gem, short(node.path)].compact.join(": "), ("lazy" if node.lazy?),
              ("from #{short(parent.path)}" if parent.parent))
      end

      # A path relative to the longest directory of $LOAD_PATH that it is below.
      def short(path)
        directory = @reading.load_path.select { |one| path.start_with?("#{one}/") }.max_by(&:length)
        directory ? path.delete_prefix("#{directory}/") : path
      end
    end
  end
end
