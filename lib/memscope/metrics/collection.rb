# frozen_string_literal: true

require_relative "../allocator"
require_relative "../cgroup"
require_relative "../ledger"
require_relative "../snapshot"
require_relative "../ttl_cache"

module Memscope
  module Metrics
    # What one collection of families reads: each source at most once, and none above tier T1 but at the interval of the
    # configuration.
    #
    # @api private
    class Readings
      CACHES = %i[allocator ledger arenas].to_h { |source| [source, TtlCache.new] }.freeze
      private_constant :CACHES

      # @return [Hash{Symbol => Reading}] what has been read so far
      attr_reader :taken

      # @param configuration [#metrics_ledger_interval_seconds, #metrics_arenas]
      def initialize(configuration)
        @interval = configuration.metrics_ledger_interval_seconds
        @arenas = configuration.metrics_arenas
        @taken = {}
      end

      # @param source [Symbol] of Definition#source
      # @return [Boolean] whether the configuration excludes it
      def excluded?(source) = source == :ledger && !@interval

      # @param source [Symbol] of Definition#source
      # @return [Reading, Hash, nil] nil where it is not to be read
      def [](source)
        return taken if source == :taken

        @taken.fetch(source) { (reading = read(source)) && (@taken[source] = reading) }
      end

      private

      # The allocator is the same for the life of the process.
      def read(source)
        case source
        when :snapshot then Snapshot.read
        when :cgroup then Cgroup.read
        when :allocator then CACHES[:allocator].fetch(Float::INFINITY) { Allocator.read }
        when :ledger then CACHES[:ledger].fetch(@interval) { Ledger.read } if @interval
        when :arenas then arenas if @arenas
        end
      end

      # Tier T1 under jemalloc. Elsewhere T2, so at the interval, or not at all.
      def arenas
        return Arenas.read if self[:allocator].name == :jemalloc

        CACHES[:arenas].fetch(@interval) { Arenas.read } if @interval
      end
    end

    # Whose samples a collection has: this process's own, or those of all of Puma's workers.
    #
    # @api private
    module Cluster
      class << self
        # What workers have reported to their master. Where none was started to report, Workers would read this process
        # itself, which is tier T2.
        #
        # @return [Enumerable<Worker>]
        def reports
          return [] if Memscope.autoload?(:Workers) || !defined?(Memscope::Workers) || !Workers.current

          Workers.read
        end

        # @return [Hash{String => Worker}] by label: the newest report of each index, as a phased restart has two
        #   workers of one index for a while
        def workers
          all = reports.group_by { |one| one.role == :master ? "master" : one.index&.to_s }.except(nil)
          all.transform_values { |same| same.max_by { |one| one.booted_at.to_f } }
        end
      end
    end

    # Samples for exporters that ask metric by metric. One scrape is answered from one collection, so that rows sum;
    # asking again with the same key begins the next scrape.
    #
    # @api private
    class Scrape
      # @param worker [String, Integer, false, nil] as for Metrics.families
      def initialize(worker: nil)
        @worker = worker
        @mutex = Mutex.new
      end

      # @param name [String] of a family
      # @param key [Object] identifies the question: the same in each scrape
      # @return [Array<Sample>] empty where the family has none
      def samples(name, key = name)
        families = @mutex.synchronize do
          start unless @pid == Process.pid && !@asked.include?(key)
          @asked[key] = true
          @families
        end
        families[name]&.samples || []
      end

      private

      def start
        @families = Metrics.families(worker: @worker).to_h { |family| [family.name, family] }.freeze
        @asked = {}
        @pid = Process.pid
      end
    end
  end
end
