# frozen_string_literal: true

module Memscope
  module Report
    # The processes of a server, one per line with its sizes, sharing and growth, and then their largest rows.
    class WorkersPage < ReadingPage
      # How many rows of the ledgers have a column of their own. The others share one.
      ROWS = 5
      # Fields for which the table shows a dash if they are missing. Their reasons are not printed.
      DASHED = %i[unshared_since_fork_bytes].freeze
      # Verdicts whose sentence is below the table.
      TOLD = %i[leak too_early].freeze

      private

      def subject
        number = @reading.count { |worker| worker.role == :worker }
        [*(counted(number, "workers") if number.positive?), "pid #{@reading.pid}"]
      end

      def sections = [sizes, rows, (say(:shared_pages) if many?), growth, policy, whys]

      def policy = @reading.filter_map(&:policy_decision).map { |text| @page.wrapped("policy: #{text}") }

      # Of processes that leak, and of those too young to judge.
      def growth
        told = @reading.select { |worker| TOLD.include?(worker.verdict&.kind) }
        told.map { |worker| @page.wrapped("#{name(worker)}: #{worker.verdict.sentence}") }
      end

      def sizes
        headings = ["MiB", "pid", *Worker::COLUMNS.values, "up", *("verdict" if judged?)]
        all = ["all", "", "", cell(@reading.pss_bytes), cell(@reading.uss_bytes)]
        lines = @reading.map do |worker|
          [name(worker), worker.pid.to_s, *cells_of(worker, Worker::COLUMNS.keys), up(worker),
           *(worker.verdict&.word.to_s if judged?)]
        end
        lines << all.fill("", all.size...headings.size) if many?
        @page.table(headings, lines, keys: @reading.map(&:index))
      end

      def judged? = @reading.any?(&:verdict)

      def many? = @reading.count > 1

      def name(worker) = worker.index ? "worker #{worker.index}" : { master: "master" }.fetch(worker.role, "this")

      def up(worker)
        time = worker.booted_at&.then { |booted| duration([@reading.at - booted, 0].max) }
        time&.sub(/(?<=min)utes?|(?<=[hs])(?:our|econd)s?/, "") || @page.unknown
      end

      def rows
        known = @reading.select(&:rows)
        return if known.empty?

        sums = known.map(&:rows).reduce { |all, rows| all.merge(rows) { |_id, sum, bytes| sum + bytes } }
        largest = sums.max_by(ROWS, &:last).map(&:first)
        headings = ["MiB", *largest.map { |id| id.name.tr("_", " ") }, "others", "= RSS"]
        @page.table(headings, known.map { |worker| row_cells(worker, largest) })
      end

      def row_cells(worker, largest)
        own = largest.map { |id| worker.rows.fetch(id, 0) }
        sum = worker.ledger_rss_bytes
        [name(worker), *[*own, sum - own.sum, sum].map { |bytes| mebibytes(bytes) }]
      end

      # A sentence on the last reports precedes the footer.
      def footer = [*reported, super]

      def reported
        oldest = @reading.select(&:at).min_by(&:at)
        say(:reported, name: name(oldest), at: oldest.at.strftime("%H:%M:%S")) if many? && oldest
      end

      def whys
        @reading.flat_map do |worker|
          explained(worker.reasons.except(*DASHED).transform_keys { |id| "#{name(worker)}: #{id}" })
        end
      end
    end

    # Mappings with resident memory, one a line: KiB of address space, KiB resident, permissions, address, the ledger
    # row that owns the mapping, and its file's name. If several rows own parts of it, the smaller ones are below. With
    # a limit, the largest mappings first.
    class MappingsPage < ListPage
      # All of them by default.
      VIEW = { limit: nil }.freeze

      private

      def title = nil

      def sections
        resident = @reading.reject { |mapping| mapping.resident_bytes.zero? }
        shown = @limit ? resident.max_by(@limit, &:resident_bytes) : resident
        rest = resident - shown
        rows = [*shown.flat_map { |mapping| rows(mapping) }, *([sum(rest, "smaller mappings")] if rest.any?),
                sum(resident, "mappings")]
        [@page.listing(%w[KiB resident access address row], rows)]
      end

      def rows(mapping)
        ((first, _bytes), *others) = mapping.rows.sort_by { |_path, bytes| -bytes }
        owner = [first.to_s, File.basename(mapping.name)].reject(&:empty?).join("  ")
        [[kibibytes(mapping.size_bytes), kibibytes(mapping.resident_bytes), mapping.permissions,
          mapping.start.to_s(16), owner],
         *others.map { |path, bytes| ["", "#{kibibytes(bytes)} of it", "", "", path.to_s] }]
      end

      def sum(mappings, noun)
        [kibibytes(mappings.sum(&:size_bytes)), kibibytes(mappings.sum(&:resident_bytes)), "", "",
         counted(mappings.size, noun)]
      end

      def kibibytes(bytes) = count(bytes / 1024)
    end

    # A process by the kernel's counters alone.
    class ExternalProcessPage < ReadingPage
      # Each has its name in page.words.
      FIGURES = %i[rss_bytes pss_bytes uss_bytes shared_bytes anonymous_bytes file_bytes shared_memory_bytes
                   peak_rss_bytes swap_bytes].freeze

      private

      def title
        @page.joined(["memscope #{@reading.memscope}", "pid #{@reading.pid} seen from outside", "uid #{@reading.uid}"])
      end

      def sections = [limits, figures, malloc, cgroup]

      def footer = "  read in #{milliseconds(@reading.cost.wall_us)}"

      def limits
        why = @reading.runs_ruby? ? :silent : :no_ruby
        [@page.wrapped(@reading.command.to_s[0, 200]), say(@reading.listens? ? :listens : why, pid: @reading.pid)]
      end

      def figures
        known = FIGURES.select { |name| @reading.public_send(name) }
        @page.listing(["MiB", ""], known.map { |name| [mebibytes(@reading.public_send(name)), text(name)] })
      end

      def malloc
        return if @reading.reasons.key?(:mallocs)

        libraries = @reading.mallocs.map { |library| "#{library.name}, #{library.path}" }
        libraries << text(:no_library) if libraries.empty?
        ["  #{text(:libraries)}", *libraries.map { |text| @page.wrapped(text, indent: "    ") },
         *@reading.variables.to_h.map { |name, value| @page.wrapped("set: #{name}=#{value}") }]
      end

      def cgroup
        group = @reading.cgroup
        return unless group && group.version != :none

        limit = group.limit_bytes ? "limit #{size(group.limit_bytes)}" : "no limit"
        used = "working set #{size(group.working_set_bytes)}" if group.working_set_bytes
        @page.wrapped([("cgroup #{group.path}:" if group.path), [limit, used].compact.join(", ")].compact.join(" "))
      end
    end
  end
end
