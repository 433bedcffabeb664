# frozen_string_literal: true

module Memscope
  module Report
    # The common base of the pages about heap graphs: paths with their bytes, and lists.
    class HeapPage < ReadingPage
      # The fields whose reasons name the gaps of a dump.
      LACKING = %i[garbage_count new_count].freeze
      CLASS = ->(row) { Terms.explained(row.name) }

      private

      def reasons = sentences(%i[names target_count] + (@reading.known? ? %i[reachable_count retained] + LACKING : []))

      # Paths or objects, each with its bytes, the largest first. `all`: with the rows that are 0.0.
      def paths_under(heading, rows, all: false)
        return if rows.empty?

        own, others = rows.partition { |_bytes, one| one.own? }
        scale = Scale.of(others.map(&:first))
        tiny, shown = alike(others).partition { |bytes,| !all && scale.tiny?(bytes) }
        lines = shown.map { |bytes, text| [scale.text(bytes), text] }
        { "less than 0.05 #{scale.unit}" => tiny, "memscope itself" => own }.each do |of, some|
          lines << ["", "#{counted(some.size, 'rows')} of #{of}"] if some.any?
        end
        @page.listing([scale.unit, heading], lines, long: :wrap)
      end

      # Rows with the same text become one.
      def alike(rows)
        rows.group_by { |_bytes, one| described(one) }.map do |text, same|
          number = same.sum { |_bytes, one| one.is_a?(HeapGraph::Path) ? one.count : 1 }
          [same.sum(&:first), number > 1 ? "#{text} (#{count(number)} alike)" : text]
        end
      end

      def described(one)
        path = one.is_a?(HeapGraph::Path) ? one : one.path
        text = path&.to_s(unicode: @page.unicode?) || one.name
        return text unless one.held_class

        made = " made at #{one.held_made_at}" if one.held_made_at
        "#{text}, holding #{count(one.held_count)} #{Terms.explained(one.held_class)}#{made}"
      end

      # A list as of `sums`, named by the block. Leaves out rows that are 0.0.
      def listed(columns, name, rows)
        fields = columns.filter_map { |heading, field| field if heading.include?("%s") }
        scale = Scale.of(rows.flat_map { |row| fields.map { |field| value(row, field) } })
        rows = rows.reject { |row| fields.all? { |field| scale.tiny?(value(row, field)) } }
        keys = rows.grep(HeapGraph::ClassRow).map(&:name) # to which links lead
        sums(columns, name, rows.map { |row| [yield(row), [row]] }, scale, keys: keys) if rows.any?
      end

      def of_others(rows) = rows.reject { |row| Terms.own?(row.name) }

      def objects(number, bytes) = number ? "#{counted(number, 'objects')}, #{size(bytes)}" : "unknown"

      # Explains the roots at the beginnings of paths, unless their names do.
      def roots(paths)
        names = paths.map { |path| path.steps.first.name }.uniq.select { |name| Terms.root(name) }
        @page.wrapped(names.map { |name| "(#{name}): #{Terms.root(name)}" }.join("; ")) if names.any?
      end

      def dumps = ("dump #{@reading.source}" if @reading.source)

      # The process of a dump is unknown.
      def title = dumps ? @page.joined(["memscope #{@reading.memscope}", dumps]) : super

      def footer = @page.wrapped(cost)

      # The gaps of a dump come first: the rest is judged without these objects.
      def lacking = @reading.reasons.values_at(*LACKING).compact.first(1).map { |why| sentence(why) }
    end

    # The objects of a later heap dump that are not in an earlier one: their retainers, classes and sites.
    class HeapGrowthPage < HeapPage
      private

      def sections = @reading.known? ? [*lacking, totals, paths, classes, sites] : []

      def totals
        garbage = objects(@reading.new_garbage_count, @reading.new_garbage_bytes)
        all = "#{signed(@reading.total_count)} objects, #{signed_mebibytes(@reading.total_bytes)} MiB"
        @page.wrapped("new: #{objects(@reading.new_count, @reading.new_bytes)}; garbage: #{garbage}; in all #{all}")
      end

      def paths = paths_under(text(:new_holders), @reading.paths.map { |path| [path.accumulated_bytes, path] })

      def classes
        listed({ "new %s" => :new_bytes, "new objects" => :new_count, "+%s" => :bytes, "+objects" => :count }, "class",
               of_others(@reading.classes), &CLASS)
      end

      def sites = listed({ "new %s" => :bytes, "new objects" => :count }, "allocated at", @reading.sites, &:name)

      def dumps = "dumps #{@reading.sources.join(', ')}"
    end

    # A heap graph: the sizes of reachable objects and of garbage; where memory has accumulated, or the paths to objects
    # of one class; and the memory that classes and objects retain.
    class HeapGraphPage < HeapPage
      # How many rows are shown of garbage by class, and of duplicate Strings.
      MAX_ROWS = 5
      OWN = { "%s" => :bytes, "objects" => :count }.freeze

      private

      def sections = @reading.known? ? [*lacking, totals, paths, retained, sites, dominators, garbage, strings] : []

      # In a dump without roots, it is unknown which objects are reachable.
      def totals
        place = @reading.source && @reading.roots.empty? ? "in the dump" : "reachable"
        garbage = objects(@reading.garbage_count, @reading.garbage_bytes)
        @page.wrapped("#{place}: #{objects(@reading.reachable_count, @reading.reachable_bytes)}; garbage: #{garbage}")
      end

      def paths
        asked = @reading.paths_to
        return say(:no_path, name: asked, why: unreached) if asked && @reading.target_count.to_i.zero?

        rows = @reading.paths.map { |path| [path.accumulated_bytes || path.retained_bytes, path] }
        [paths_under(asked ? sought : text(:accumulated), rows, all: asked), roots(@reading.paths)]
      end

      def unreached
        @reading.reasons[:target_count] ||
          text(:garbage_only, number: counted(@reading.unreachable_target_count, "instances"))
      end

      def sought
        shown = text(:first_paths, number: @reading.paths.size) if @reading.path_count > @reading.paths.size
        text(:paths, name: @reading.paths_to, objects: counted(@reading.target_count, "objects"),
                     kinds: counted(@reading.path_count, "kinds"), shown: shown)
      end

      def retained
        rows = listed({ "retained %s" => :retained_bytes, "own %s" => :bytes, "objects" => :count }, "class",
                      of_others(@reading.retained), &CLASS)
        [rows, say(:retained)] if rows
      end

      def sites = listed(OWN, "allocated at", @reading.sites.to_a, &:name)

      def dominators = paths_under(text(:dominators), @reading.dominators.map { |one| [one.retained_bytes, one] })

      def garbage = listed(OWN, "class of garbage", @reading.garbage.first(MAX_ROWS), &CLASS)

      def strings
        found = @reading.strings or return
        rows = listed({ "%s" => :saved_bytes, "objects" => :count }, "the same String",
                      found.duplicates.first(MAX_ROWS)) { |row| "#{row.name} of #{count(row.length)} B" }
        [rows, say(:duplicates, number: count(found.duplicate_count), all: counted(found.count, "Strings"),
                                bytes: size(found.saved_bytes))]
      end

      def cost
        return super unless @reading.pause_ms

        text(:cost_of_child, cost: super, bytes: size(@reading.child_bytes),
                             pause: milliseconds(@reading.pause_ms * 1000))
      end
    end

    # The growth from an earlier heap graph of a process to a later one: by the paths where memory has accumulated, and
    # by class. The earlier graph lists only the largest rows. Others are assumed to have had the smallest number that
    # it lists, so no growth is overstated.
    class HeapSincePage < HeapPage
      VIEW = { since: nil, limit: nil }.freeze

      private

      def sections = [*lacking, totals, paths, classes]

      def totals
        span = duration(@reading.at - @since.at)
        changes = %i[reachable garbage].map do |part|
          objects, bytes = [:"#{part}_count", :"#{part}_bytes"].map { |name| change(name) }
          "#{part}: #{objects ? "#{signed(objects)} objects, #{signed_mebibytes(bytes)} MiB" : 'unknown'}"
        end
        of = " since the report of process #{@since.pid}" unless @since.pid == @reading.pid
        @page.wrapped("in #{span}#{of}: #{changes.join('; ')}")
      end

      def change(name)
        later, earlier = [@reading, @since].map(&name)
        later && earlier && (later - earlier)
      end

      def paths
        rows = grown(@reading.paths, @since.paths, :accumulated_bytes, &:to_s)
        rows.empty? ? say(:nothing_grew) : paths_under(text(:grown_holders), rows)
      end

      def classes
        rows = grown(of_others(@reading.retained), @since.retained, :retained_bytes, &:name)
        scale = Scale.of(rows.map(&:first))
        before = @since.retained.to_h { |row| [row.name, row] }
        lines = rows.reject { |bytes, _row| scale.tiny?(bytes) }.map do |bytes, row|
          [scale.signed(bytes), *own(row, before[row.name], scale), Terms.explained(row.name)]
        end
        @page.listing(["+#{scale.unit} retained", "+#{scale.unit} own", "+objects", "class"], lines) if lines.any?
      end

      def own(row, earlier, scale)
        return [@page.unknown] * 2 unless earlier

        [scale.signed(row.bytes - earlier.bytes), signed(row.count - earlier.count)]
      end

      # The rows that grew, each with its growth, the largest first.
      def grown(later, earlier, field, &name)
        before = earlier.group_by(&name)
        floor = earlier.map { |row| row.public_send(field).fdiv(number_of(row)).ceil }.min.to_i
        rows = later.uniq(&name).map do |row|
          listed = before.fetch(yield(row), [])
          [row.public_send(field) - listed.sum(&field) - (floor * unlisted(row, listed)), row]
        end
        rows.select { |bytes, _row| bytes.positive? }.max_by(@limit, &:first)
      end

      # The earlier list may have left out some of the objects to which paths are alike.
      def unlisted(row, listed) = [number_of(row) - listed.sum { |one| number_of(one) }, 0].max

      def number_of(row) = row.is_a?(HeapGraph::Path) ? row.count : 1
    end
  end
end
