# frozen_string_literal: true

require_relative "totals"

module Memscope
  class Tags < Reading
    # What the runs of one tag allocate and retain.
    class Row < Record
      # @return [String] the tag
      field :name, :string, null: false
      # @return [Integer] runs that have begun: requests, jobs
      field :runs, :count, null: false, counters: true
      # @return [Integer] runs in progress
      field :running, :count, null: false
      # @return [Float, nil] objects that a run allocates
      field :allocated_objects, :number
      # @return [Float, nil] one standard error of `allocated_objects`
      field :allocated_objects_error, :number
      # @return [Integer, nil] bytes that a run allocates through malloc: exact with jemalloc, else estimated
      field :malloc_allocated_bytes, :bytes
      # @return [Integer, nil] live objects that runs have allocated since the profile of objects began; nil for few
      #   samples
      field :live_objects, :count
      # @return [Integer, nil] bytes of these live objects, with the malloc memory that they report
      field :live_bytes, :bytes
      # @return [Integer, nil] live memory that runs have allocated through malloc since the malloc profile began
      field :malloc_live_bytes, :bytes
      # @return [Float, nil] objects that 1,000 runs retain; nil for few samples
      field :retained_objects, :number
      # @return [Float, nil] one standard error of `retained_objects`
      field :retained_objects_error, :number
      # @return [Float, nil] for few samples: with a probability of 95 %, 1,000 runs retain fewer objects than this, if
      #   objects are retained one by one
      field :retained_objects_below, :number
      # @return [Totals, nil] what these numbers are calculated from; nil for several tags together
      field :totals, Totals, sparse: true

      # The fewest samples from which a number is estimated, and, for each smaller number of samples, the upper bound of
      # a Poisson mean (95 %, one-sided).
      ENOUGH = Profile::Entry::ENOUGH_SAMPLES
      BOUNDS = [2.996, 4.744, 6.296, 7.754, 9.154, 10.513, 11.842, 13.148, 14.435, 15.705].freeze
      private_constant :ENOUGH, :BOUNDS

      # @api private
      # @return [Row] a copy with this name, without totals
      def named(name) = changed(name: name, totals: nil)

      class << self
        # @return [Symbol] the field that identifies a record in a list
        def identity = :name

        # @api private
        # @param totals [Array<Totals>] of one tag, or of several that are summed up
        # @return [Row]
        def of(totals, name: totals.first.name, profiled: nil, judged: nil, sample_objects: nil)
          capture({ name: name, runs: sum(totals, :runs), running: sum(totals, :running),
                    **(profiled ? allocated(totals, profiled) : {}), **live(totals),
                    malloc_allocated_bytes: a_run(totals, :malloc_allocated_bytes, :malloc_runs)&.round,
                    malloc_live_bytes: sum(totals, :malloc_live_bytes),
                    **(judged ? retained(totals, judged, sample_objects) : {}),
                    totals: (totals.first if totals.one?) })
        end

        private

        def sum(totals, number)
          numbers = totals.map(&number)
          numbers.sum unless numbers.include?(nil)
        end

        def a_run(totals, number, runs)
          whole, count = [number, runs].map { |name| sum(totals, name) }
          whole / count.to_f if whole && count&.positive?
        end

        # For several tags, the error is the sum of their errors, which is an upper bound.
        def allocated(totals, windows)
          mean = a_run(totals, :allocated_objects, :profiled_runs)
          return {} unless mean && sum(totals, :counted) >= ENOUGH

          errors = totals.sum do |one|
            Profile::Shares.deviation([one.allocated_objects, one.squares, one.products], one.counted,
                                      one.allocated_objects, windows)
          end
          { allocated_objects: mean.round(2),
            allocated_objects_error: (errors / sum(totals, :profiled_runs)).round(2) }
        end

        def live(totals)
          return {} unless sum(totals, :live_samples).to_i >= ENOUGH

          { live_objects: sum(totals, :live_objects), live_bytes: sum(totals, :live_bytes) }
        end

        def retained(totals, windows, sample_objects)
          runs = sum(totals, :judged_runs)
          samples = sum(totals, :samples)
          return {} unless runs&.positive? && samples

          thousands = runs / 1000.0
          return { retained_objects_below: (BOUNDS.fetch(samples) * sample_objects / thousands).round(2) } if
            samples < ENOUGH

          sums = Profile::Shares.sums(totals, Profile::Shares::OBJECTS)
          gross = totals.sum { |one| one.shares.sum { |share| share[Totals::OBJECTS].abs } }
          error = Profile::Shares.deviation(sums, samples, gross, windows, gross)
          { retained_objects: (sums.first / thousands).round(2), retained_objects_error: (error / thousands).round(2) }
        end
      end
    end
  end
end
