# frozen_string_literal: true

module Memscope
  module Metrics
    # How one family is declared: its name, what it means, and how its samples are taken from a reading.
    #
    # A name ends in the base unit, where there is one, and that of a counter in _total after it. Labels are a closed
    # list; their values are bounded by what memscope itself knows (rows, arenas, workers, kinds), never by users.
    class Definition
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
      # @return [Symbol, nil] the reading that it is taken from: a method of Readings; nil for one that only reports of
      #   workers have
      attr_reader :source

      # @param name [String]
      # @param help [String]
      # @param type [Symbol]
      # @param labels [Array<Symbol>]
      # @param source [Symbol, nil]
      # @param read [Symbol, Proc, nil] from the reading a number, or with labels a Hash of the labels' values to
      #   numbers; nil is not known, and gives no sample
      # @param report [Symbol, Proc, nil] the same from the report of a worker; for what is read from a snapshot the
      #   same of that in the report
      # @param shared [Boolean] whether it is the same for all workers, and so has no label :worker
      def initialize(name, help, source:, type: :gauge, labels: [], read: nil, report: nil, shared: false)
        @name = "memscope_#{name}".freeze
        @type = type
        @help = help
        @unit = name[/_(bytes_per_second|bytes|seconds)(_total)?\z/, 1].freeze
        @labels = labels.freeze
        @source = source
        @read = read&.to_proc
        @report = report&.to_proc || (of_reported_snapshot(@read) if source == :snapshot)
        @shared = shared
        freeze
      end

      # @return [Boolean] whether workers report it, so that any of them can answer for all: all families but those
      #   that are the same for all workers
      def reported? = !@report.nil?

      # @return [Boolean] whether it is the same for all workers
      def shared? = @shared

      # @return [Array<Symbol>] the names of all labels that a sample may have
      def label_names = shared? ? labels : [*labels, :worker]

      # @param reading [Reading, nil] of `source`
      # @param worker [String, nil] the label of this process; nil for none
      # @return [Hash{Hash{Symbol => String} => Numeric}] by labels; a Hash, so no two samples have the same
      def samples(reading, worker)
        if reading
          labelled(@read.call(reading), shared? ? nil : worker)
        else
          {}
        end
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
