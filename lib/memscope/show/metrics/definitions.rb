# frozen_string_literal: true

module Memscope
  module Metrics
    Record.declare(__FILE__)

    # The declaration of one family: its name, its meaning, and where its samples come from.
    #
    # A name ends in its base unit, if it has one. The name of a counter ends in _total. Labels are a closed list. Their
    # values are bounded by memscope itself (rows, arenas, workers, kinds, 20 classes, 50 tags) and never come from
    # users: tags are names of actions and jobs.
    class Definition
      # The `type` is :gauge, or :counter for a total that only rises. The `unit` is "bytes", "seconds",
      # "bytes_per_second", or nil for plain numbers. The `help` is one sentence for people, without a full stop. The
      # `labels` are without :worker, which `label_names` adds. The `source` is the key, in Readings, of the reading
      # that has the numbers; nil if only workers' reports have them.
      attr_reader :name, :type, :unit, :help, :labels, :source

      # `read` returns a number from the reading or, if there are labels, a Hash from their values to numbers; nil is
      # unknown, and has no sample. `report` returns the same from a worker's report, by default the result of `read`
      # for the snapshot or the verdict in the report.
      def initialize(name, help, source, read = nil, report: nil, labels: [])
        @name = "memscope_#{name}".freeze
        @type = name.end_with?("_total") ? :counter : :gauge
        @unit = name[/_(bytes_per_second|bytes|seconds)(_total)?\z/, 1].freeze
        @help = help
        @labels = labels.freeze
        @source = source
        @read = read
        of_report = ->(worker) { worker.public_send(source)&.then(&read) }
        @report = report || (of_report if %i[snapshot verdict].include?(source))
        freeze
      end

      # @return [Boolean] whether workers report it, so that any of them can answer for all
      def reported? = !@report.nil?

      # @return [Boolean] whether it is the same for all workers, and has no label :worker
      def shared? = %i[allocator cgroup].include?(source)

      # @return [Array<Symbol>] all labels that a sample may have
      def label_names = shared? ? labels : [*labels, :worker]

      # @param worker [String, nil] the label of this process; nil for none
      # @return [Hash{Hash{Symbol => String} => Numeric}] by labels; a Hash, so that no two samples have the same labels
      def samples(reading, worker) = reading ? labelled(@read.call(reading), (worker unless shared?)) : {}

      # @param workers [Hash{String => Worker}] by label
      def reported_samples(workers) = {}.merge(*workers.map { |label, one| labelled(@report&.call(one), label) })

      private

      def labelled(values, worker)
        own = worker ? { worker: worker } : {}
        return {} if values.nil?
        return { own => values } if labels.empty?

        values.compact.transform_keys { |key| labels.zip(Array(key).map(&:to_s)).to_h.update(own) }
      end
    end

    # The numbers that are computed, by the name that the table of families gives after "=": each from a reading or a
    # worker's report, with the arguments of the table.
    # @api private
    module Computed
      GC_PAGE_BYTES = ::GC::INTERNAL_CONSTANTS[:HEAP_PAGE_SIZE]

      module_function

      def server(allocator) = { [allocator.name, allocator.version] => 1 }

      def heap_bytes(snapshot)
        pages = snapshot.gc[:heap_allocated_pages]
        pages && GC_PAGE_BYTES && (pages * GC_PAGE_BYTES)
      end

      # Numbers of a part of a snapshot, as LABEL:KEY.
      def values(snapshot, part, *pairs)
        numbers = snapshot.public_send(part) or return
        pairs.to_h { |pair| pair.split(":").map(&:to_sym) }.transform_values { |key| numbers[key] }
      end

      # Counts of jemalloc's pages, in bytes.
      def pages(snapshot, *pairs)
        values(snapshot, :jemalloc, *pairs)&.transform_values do |count|
          count && (count * snapshot.jemalloc[:page_bytes])
        end
      end

      def pressure(cgroup) = cgroup.pressure&.transform_values { |stall| stall[:total_us]&.fdiv(1_000_000) }

      def level(arenas, name) = arenas.level(name.to_sym)

      def kinds(verdict) = Verdict::KINDS.to_h { |kind| [kind, kind == verdict.kind ? 1 : 0] }

      def leak(verdict) = verdict.leak? ? verdict.bytes_per_hour.fdiv(3_600) : 0

      # By action and whether it was executed.
      def decisions(worker)
        (worker.policy_decisions || {}).flat_map do |action, counts|
          counts.map { |executed, number| [[action, executed.to_sym == :executed], number] }
        end.to_h
      end

      def classes(census) = census.by(:class).first(20).to_h { |row| [row.name, row.count] }

      # A field of Tags::Row, by tag. The runs of a tag are a counter. The runs of Tags::OTHER are not: they are a sum,
      # which jumps when a tag joins the others.
      def tag(reading, field)
        rows = (reading.is_a?(Tags) ? reading.rows : reading.tags).to_a
        rows = rows.reject { |row| row.name == Tags::OTHER } if field == "runs"
        rows.to_h { |row| [row.name, row.public_send(field)] }
      end

      # Seconds since 1970.
      def time(reading, field) = reading.public_send(field)&.to_f&.round(3)

      def ledger_time(worker) = worker.rows && time(worker, :at)

      # A part of Cost, by reading.
      def costs(taken, part) = taken.transform_values { |reading| reading.cost.public_send(part).fdiv(1_000_000) }

      def reported_costs(worker, part) = worker.costs&.transform_values { |cost| cost[part.to_sym].fdiv(1_000_000) }
    end

    # The table of families, definitions.txt.
    # @api private
    module Table
      ROW = /^(\w+)(?:\{([\w,]+)\})? (\w+|-)([^|\n]*)(?:\| (.+))?\n((?:  .*\n)+)/

      def self.read
        File.read("#{__dir__}/definitions.txt", encoding: "UTF-8").scan(ROW).map do |row|
          name, labels, source, read, report, help = row
          Definition.new(name, help.split("\n").map(&:strip).join(" "), (source.to_sym unless source == "-"),
                         way(read.strip), report: report && way(report), labels: labels.to_s.split(",").map(&:to_sym))
        end
      end

      # The way from a reading to a number: fields and keys with dots between them, perhaps divided; or a method of
      # Computed with arguments.
      def self.way(text)
        method, *arguments = text.delete_prefix("=").split
        return ->(reading) { Computed.public_send(method, reading, *arguments) } if text.start_with?("=")

        path, divisor = text.split("/")
        steps = path.to_s.split(".").map(&:to_sym)
        lambda do |reading|
          value = steps.reduce(reading) { |from, step| from.is_a?(Hash) ? from[step] : from&.public_send(step) }
          divisor && value ? value.fdiv(divisor.to_i) : value
        end
      end
      private_class_method :way
    end

    # All families, in the order of their export. The costs of the readings are last, when all readings have been taken.
    DEFINITIONS = Table.read.freeze
  end
end
