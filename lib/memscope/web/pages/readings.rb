# frozen_string_literal: true

module Memscope
  module Web
    # What each page shows.
    #
    # @api private
    module Pages
      # How a page shows its reading: as HTML by the template with the page's own name, as JSON and text by the
      # reading's own methods.
      #
      # @api private
      module Shown
        # @return [String]
        def json = reading.to_json

        # @return [String]
        def text = reading.to_s(unicode: true)

        # @return [Symbol] the template in views/: :size_classes for SizeClasses
        def template = self.class.name[/\w+\z/].gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.to_sym

        # @return [String] "Size classes"
        def title = template.name.tr("_", " ").capitalize
      end

      # A page with a template named after the kind of its reading.
      #
      # @api private
      class Page
        include Shown

        # @return [ClusterCalls]
        attr_reader :calls
        # @return [Purge::Result, nil] of the full GC that the form asked for before this page is read
        attr_reader :collected
        # @return [Array<ClusterCalls::Outcome>, nil] what became of the form that this page answers, in each process
        attr_reader :outcomes

        # @param readings [Readings]
        # @param request [Request]
        # @param form [Hash{String => Array<String>}] the posted form, or the query
        # @param collected [Purge::Result, nil]
        # @param outcomes [Array<ClusterCalls::Outcome>, nil]
        def initialize(readings, request, form: request.query, collected: nil, outcomes: nil)
          @readings = readings
          @request = request
          @form = form
          @collected = collected
          @outcomes = outcomes
          @calls = ClusterCalls.new(readings)
        end

        # @return [ClusterCalls::Place] the process that the page shows
        # @raise [HttpError] for an unknown worker
        def place = @place ||= @calls.place(@form)

        # @return [Reading] the source of JSON and text
        def reading = @reading ||= read(template)

        private

        # @raise [HttpError] if the process does not answer
        def read(kind, **options) = @calls.read(place, kind, **options)

        # @param allowed [Array<String>]
        # @return [String] the parameter's value in the query
        # @raise [HttpError] if it is none of those allowed
        def choice(parameter, allowed, default)
          given = @request.query[parameter]&.last || default
          allowed.include?(given) ? given : raise(HttpError.parameter(parameter, given, allowed.join(", ")))
        end

        # @param size [Symbol] the bytes of a row
        # @return [Array] the rows without those that print as 0.0 MiB, unless all do
        def large(rows, size) = rows.partition { |row| row.public_send(size) >= SHOWN }.find(&:any?).to_a

        # @return [Array(Float, Float)] the parts as shares of `largest`; zeros if that is zero or nil
        def shares_of(largest, *parts) = parts.map { |part| largest&.positive? ? part.fdiv(largest) : 0.0 }
      end

      # The allocator's arenas.
      #
      # @api private
      class Arenas < Page
        # The field below each heading, by allocator; what is only address space comes last.
        COLUMNS = {
          jemalloc: { "Resident" => :resident_bytes, "Allocated" => :allocated_bytes, "Active" => :active_bytes,
                      "Dirty" => :dirty_bytes, "Muzzy" => :muzzy_bytes, "Metadata" => :metadata_bytes,
                      "Caches" => :tcache_bytes, "Retained address space" => :retained_bytes }.freeze,
          glibc: { "Resident" => :resident_bytes, "Allocated" => :allocated_bytes, "Address space" => :system_bytes,
                   "Peak address space" => :system_max_bytes }.freeze
        }.freeze
        private_constant :COLUMNS

        # @return [Boolean]
        def jemalloc? = reading.allocator == :jemalloc

        # @return [Hash{String => Symbol}] the field below each heading
        def columns = COLUMNS.fetch(reading.allocator, {})

        # @return [Array<Arena>] all arenas, then their sum
        def rows = [*reading, reading.merged]

        # @return [String]
        def name(arena) = reading.label(arena).capitalize

        # @return [Array(Float, Float)] resident memory in use, and unused, as shares of the largest arena's resident
        #   memory
        def shares(arena)
          resident = arena.resident_bytes || 0
          used = (arena.allocated_bytes || 0).clamp(0, resident)
          shares_of(reading.filter_map(&:resident_bytes).max, used, resident - used)
        end
      end

      # The allocator's size classes: of all arenas, or of one with arena=N.
      #
      # @api private
      class SizeClasses < Page
        # @return [Memscope::SizeClasses]
        # @raise [HttpError]
        def reading
          @reading ||= read(:size_classes, arena: arena)
        rescue ArgumentError => e
          raise HttpError.new(400, "#{e.message.sub(/\A.*?arena: given/, 'arena: given')}.")
        end

        # @return [Array<Integer>] the arenas to choose from
        def arenas = read(:arenas).map(&:index)

        # @return [Integer, nil]
        # @raise [HttpError]
        def arena
          given = @request.query["arena"]&.last.to_s
          return if given.empty?
          return given.to_i if given.match?(/\A\d{1,4}\z/)

          raise HttpError.parameter("arena", given, "the number of an arena")
        end

        # @return [Array<SizeClass>] the classes that hold memory
        def held = @held ||= reading.reject { |one| whole(one).zero? }

        # @return [Array(Float, Float)] in use and slack, as shares of the largest class
        def shares(one)
          shares_of(held.map { |size_class| whole(size_class) }.max, one.in_use_bytes || 0, one.slack_bytes || 0)
        end

        private

        def whole(one) = (one.in_use_bytes || 0) + (one.slack_bytes || 0)
      end

      # Ruby's own heap: how full its pages are.
      #
      # @api private
      class RubyHeap < Page
        # Row headings: a page's share of live slots.
        TENTHS = ["below 10 %", *(1..8).map { |tenth| "#{tenth}0 to #{tenth}9 %" }, "90 to 100 %"].freeze
      end

      # Every mapping with resident memory, with its owners, the largest first.
      #
      # @api private
      class Mappings < Page
        # Rows of the table; smaller mappings are summed up. JSON and text have all.
        MOST = 50
        private_constant :MOST

        # @return [Array<Mapping>]
        def shown = resident.first(MOST)

        # @return [Array<Mapping>]
        def others = resident.drop(MOST)

        # @return [Array<Array(Symbol, Integer)>] path and bytes of each ledger row that owns part of it, the largest
        #   first; none of 0.0 MiB unless all are
        def owners(mapping) = large(mapping.rows, :last).sort_by { |_path, bytes| -bytes }

        private

        def resident
          @resident ||= reading.reject { |one| one.resident_bytes.zero? }
                               .sort_by { |one| [-one.resident_bytes, one.start] }
        end
      end

      # The processes of a cluster, side by side.
      #
      # @api private
      class Workers < Page
        # @return [nil] the page shows all processes
        def place = nil

        # @return [Memscope::Workers]
        def reading = @reading ||= @readings.fetch(:workers)

        # @return [Array<Symbol>] the ledger rows to show: those with the most bytes in all processes together
        def rows
          sums = Hash.new(0)
          reading.each { |worker| (worker.rows || {}).each { |id, bytes| sums[id.to_sym] += bytes } }
          sums.select { |_id, bytes| bytes.positive? }.keys.sort_by { |id| -sums[id] }.first(4)
        end

        # @return [String]
        def name(worker) = worker.index ? "Worker #{worker.index}" : { master: "Master" }.fetch(worker.role, "Process")

        # @return [Array(Float, Float)] private and shared memory, as shares of the largest worker's RSS
        def shares(worker)
          rss = worker.rss_bytes || 0
          own = worker.uss_bytes || rss
          shares_of(reading.filter_map(&:rss_bytes).max, own, rss - own)
        end
      end

      # The smallest number of bytes that does not print as 0.0 MiB.
      SHOWN = 52_429
      # One row that a purge changed: its bytes before and after.
      Change = Struct.new(:path, :before_bytes, :after_bytes, :returned_bytes)
      private_constant :SHOWN, :Change

      # The result of a purge of one process.
      #
      # @api private
      Returned = Struct.new(:reading) do
        include Shown

        # @return [Array<Change>] rows whose change shows in MiB, the largest change first
        def changes
          # Paths of every depth: `reading.rows` goes as deep as both ledgers do.
          before, after = [reading.before, reading.after].map do |ledger|
            ledger.each_path.to_h { |path, row| [path, row.bytes] }
          end
          reading.rows.select { |_path, bytes| bytes.abs >= SHOWN }
                 .map { |path, bytes| Change.new(path, before[path], after[path], bytes) }
        end

        # @return [Integer] the sum of all other rows
        def rest_bytes = reading.rows.sum { |_path, bytes| bytes.abs >= SHOWN ? 0 : bytes }
      end

      # The result of a purge of several workers.
      #
      # @api private
      ReturnedByWorkers = Struct.new(:reading) { include Shown }
    end
  end
end
