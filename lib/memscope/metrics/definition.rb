# frozen_string_literal: true

require_relative "../reading"

module Memscope
  module Metrics
    # One number of a family.
    class Sample < Record
      # @return [Hash{Symbol => String}] unique among the samples of a family
      field :labels, :hash, null: false
      # @return [Integer, Float] in the family's unit
      field :value, :number, null: false
    end

    # A metric with its samples at one moment, for exporters.
    class Family < Record
      # @return [String] "memscope_ledger_bytes"
      field :name, :string, null: false
      # @return [String] what it is
      field :help, :string, null: false
      # @return [Symbol] :gauge or :counter
      field :type, :symbol, null: false, one_of: %i[gauge counter]
      # @return [String, nil] "bytes", "seconds", "bytes_per_second", or nil for plain numbers
      field :unit, :string
      # @return [Array<Sample>]
      field :samples, [Sample], null: false
    end

    # The declaration of one family: its name, its meaning, and where its samples come from.
    #
    # A name ends in the base unit, where it has one; the name of a counter ends in _total. Labels are a closed list;
    # memscope itself bounds their values (rows, arenas, workers, kinds), users never do.
    class Definition
      # Sources that are the same for all workers.
      SHARED = %i[allocator cgroup].freeze
      private_constant :SHARED

      # @return [String] "memscope_ledger_bytes"
      attr_reader :name
      # @return [Symbol] :gauge, or :counter for a total that only rises
      attr_reader :type
      # @return [String, nil] "bytes", "seconds" or "bytes_per_second"; nil for plain numbers
      attr_reader :unit
      # @return [String] one sentence for people, without a full stop
      attr_reader :help
      # @return [Array<Symbol>] without :worker, which `label_names` adds
      attr_reader :labels
      # @return [Symbol, nil] the reading of Readings that it comes from; nil where only reports of workers have it
      attr_reader :source

      # @param name [String]
      # @param help [String]
      # @param source [Symbol, nil]
      # @param read [Symbol, Proc, nil] returns a number of the reading, or with labels a Hash of their values to
      #   numbers; nil is unknown, and has no sample
      # @param report [Symbol, Proc, nil] the same of a worker's report; by default what `read` returns of the snapshot
      #   in the report
      # @param labels [Array<Symbol>]
      def initialize(name, help, source, read = nil, report: nil, labels: [])
        @name = "memscope_#{name}".freeze
        @type = name.end_with?("_total") ? :counter : :gauge
        @unit = name[/_(bytes_per_second|bytes|seconds)(_total)?\z/, 1].freeze
        @help = help
        @labels = labels.freeze
        @source = source
        @read = read&.to_proc
        @report = report&.to_proc || (of_reported_snapshot(@read) if source == :snapshot)
        freeze
      end

      # @return [Boolean] whether workers report it, so that any of them can answer for all
      def reported? = !@report.nil?

      # @return [Boolean] whether it is the same for all workers, and has no label :worker
      def shared? = SHARED.include?(source)

      # @return [Array<Symbol>] all labels that a sample may have
      def label_names = shared? ? labels : [*labels, :worker]

      # @param reading [Reading, nil] of `source`
      # @param worker [String, nil] the label of this process; nil for none
      # @return [Hash{Hash{Symbol => String} => Numeric}] by labels; a Hash, so that no two samples have the same
      def samples(reading, worker)
        worker = nil if shared?
        reading ? labelled(@read.call(reading), worker) : {}
      end

      # @param workers [Hash{String => Worker}] by label
      # @return [Hash{Hash{Symbol => String} => Numeric}] by labels
      def reported_samples(workers)
        workers.reduce({}) { |samples, (label, worker)| samples.update(labelled(@report.call(worker), label)) }
      end

      private

      def of_reported_snapshot(read) = ->(worker) { worker.snapshot && read.call(worker.snapshot) }

      def labelled(values, worker)
        own = worker ? { worker: worker } : {}
        return {} if values.nil?
        return { own => values } if labels.empty?

        values.compact.transform_keys { |key| labels.zip(Array(key).map(&:to_s)).to_h.update(own) }
      end
    end
  end
end
