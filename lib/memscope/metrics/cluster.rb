# frozen_string_literal: true

module Memscope
  module Metrics
    # Whose samples a collection has: this process's own, or those of all of Puma's workers.
    #
    # @api private
    class Cluster
      # @return [Hash{String => Worker}, nil] the newest of each label; nil where this process speaks for itself only
      attr_reader :workers
      # @return [String, nil] the label of this process, where it speaks for itself
      attr_reader :own_label

      class << self
        # @param worker [String, Integer, false, nil] as Metrics.families takes it
        def of(worker)
          return new(nil, given(worker)) unless worker.nil?

          # In a phased restart two workers have the same index for a while.
          all = reports.group_by { |one| label(one) }.except(nil)
          return new(nil, nil) if all.empty?

          new(all.transform_values { |same| same.max_by { |one| one.booted_at.to_f } }, nil)
        end

        # What workers have told their master. Where none was started to tell, Workers would read this process itself,
        # which is tier T2.
        #
        # @return [Enumerable<Worker>]
        def reports
          return [] if Memscope.autoload?(:Workers) || !defined?(Memscope::Workers) || !Memscope::Workers.place

          Memscope.workers
        end

        private

        def given(worker)
          case worker
          when String, Integer then worker.to_s
          when false then nil
          else raise ArgumentError, "Memscope::Metrics.families: worker: given #{worker.inspect}, " \
                                    "allowed: a String, an Integer, false, nil"
          end
        end

        def label(worker) = worker.role == :master ? "master" : worker.index&.to_s
      end

      def initialize(workers, own_label)
        @workers = workers
        @own_label = own_label
        freeze
      end
    end
  end
end
