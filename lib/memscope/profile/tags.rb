# frozen_string_literal: true

Memscope::Loading.units :MallocProfile, :ObjectProfile

module Memscope
  Record.declare(__FILE__)

  # The memory that endpoints and jobs allocate and keep, by the tag that RackTags, SidekiqTags or Memscope.tag has set.
  # A run is one call of Memscope.tag: a request, a job. Allocations count for the innermost run.
  #
  #   Memscope::ObjectProfile.start
  #   # … a few thousand requests, and two full garbage collections later
  #   row = Memscope.tags.first       # => the tag whose runs together retain most
  #   row.retained_objects            # => 2987.1, per 1,000 runs
  #   row.retained_objects_error      # => 104.3
  #
  # Retained objects are those that were allocated before the last but one major GC and that the last major GC found
  # alive, so not those of requests in progress. The growth in a period is in the difference of two profiles:
  # `(later - earlier).by(:tag)`.
  class Tags < Reading
    # The numbers of one tag's runs.
    class Row < Record
      # @return [Symbol] the number by which a Diff sorts
      def self.weight = :runs
    end

    include Collection

    # Fields that need a profile of objects.
    OF_OBJECTS = %i[allocated_objects live_objects live_bytes retained_objects].freeze
    # The minimum number of samples for an estimate.
    ENOUGH = Profile::Entry::ENOUGH_SAMPLES
    # Fields that several tags have together.
    SUMS = %i[runs running live_objects live_bytes malloc_live_bytes].freeze
    # Seconds between two readings for metrics, unless an interval for ledgers is configured.
    INTERVAL = 60
    private_constant :OF_OBJECTS, :ENOUGH, :SUMS, :INTERVAL
    # In metrics, the name of the row that sums up the tags without a row of their own.
    # @api private
    OTHER = "[other]"

    class << self
      # (see Memscope.tags)
      def read
        body = Native.tags
        body = { tags: [], reasons: { rows: body }, cost: Cost.of(:T2) } unless body.is_a?(Hash)
        malloc, why = malloc_profile
        body[:cost] = Cost.sum([Cost.capture(body[:cost]), malloc.cost]) if malloc
        rows = rows(body, malloc)
        reasons = rows.empty? ? { rows: :tags_unset } : missing(rows, body, why)
        capture({ rows: rows, reasons: { **reasons, **body[:reasons] }, cost: body[:cost] })
      end

      # @api private
      def read_for_metrics(cache, interval) = cache.fetch(interval || INTERVAL) { read.bounded }

      private

      # The running profile, and why it lacks some tags; or nil, and why it cannot be read.
      def malloc_profile
        [MallocProfile.snapshot, :tags_few_malloc_samples] if MallocProfile.running?
      rescue Unavailable => e
        [nil, e.message]
      end

      # Sorted by a tag's total of retained objects, not per run: an endpoint that fills its caches in its first request
      # would come before a leak.
      def rows(body, malloc)
        entries = malloc ? malloc.by(:tag).to_h { |entry| [entry.name, entry] } : {}
        body[:tags].sort_by { |tag| [-kept(tag), -tag[:live_bytes].to_i, -tag[:runs], tag[:name]] }
                   .map { |tag| row(tag, entries[tag[:name]], body[:judged]) }
      end

      def kept(tag) = (tag[:shares] || []).sum { |share| share[Profile::Shares::OBJECTS] }

      def row(tag, entry, windows)
        malloc = tag[:malloc_allocated_bytes] || entry&.allocated_bytes
        live = tag.slice(:live_objects, :live_bytes) if tag[:live_samples].to_i >= ENOUGH
        allocated = a_run(tag[:allocated_objects], tag[:profiled_runs]) if tag[:counted].to_i >= ENOUGH
        { name: tag[:name], runs: tag[:runs], running: tag[:running], malloc_live_bytes: entry&.live_bytes,
          malloc_allocated_bytes: a_run(malloc, tag[:malloc_runs])&.round,
          allocated_objects: allocated, **live.to_h, **(windows ? retained(tag, windows) : {}) }
      end

      def a_run(whole, runs) = ((whole / runs.to_f).round(2) if whole && runs&.positive?)

      def retained(tag, windows)
        thousands = tag[:judged_runs].fdiv(1000)
        return {} if tag[:samples] < ENOUGH || !thousands.positive?

        shares = Profile::Shares
        error = shares.error([shares::Part.new(tag[:samples], kept(tag), tag[:shares])], shares::OBJECTS,
                             shares::Windows.new(**windows))
        { retained_objects: (kept(tag) / thousands).round(2), retained_objects_error: (error / thousands).round(2) }
      end

      # Why a row lacks a number. `why` is about malloc's numbers: nil if no malloc profile is running.
      def missing(rows, body, why)
        of_objects = body[:profiled] ? :tags_few_samples : body[:reasons][:profiled] || :tags_without_profile
        reasons = OF_OBJECTS.to_h { |name| [name, of_objects] }
        reasons[:retained_objects] = :tags_unjudged if body[:profiled] && !body[:judged]
        reasons[:malloc_allocated_bytes] = why || :tags_malloc_uncounted
        reasons[:malloc_live_bytes] = why || :tags_without_malloc_profile
        reasons.select { |name, _why| rows.any? { |row| row[name].nil? } }
      end
    end

    # The rows that a table shows: the first ones, and the sum of the others.
    #
    # @param most [Integer]
    # @param others [String, nil] the name of the row that sums up the others
    # @return [Array<Row>] all rows; or, if there are more, the first `most` and a row such as "12 other tags"
    def top(most = 50, others: nil)
      rest = rows.drop(most)
      return rows if rest.empty?

      sums = SUMS.to_h { |name| [name, rest.filter_map(&name).then { |known| known.sum if known.any? }] }
      [*rows.first(most), Row.capture({ name: others || "#{rest.size} other tags", **sums })]
    end

    # @api private
    # @return [Tags] the rows of `top`; the row that sums up the other tags is named "[other]"
    def bounded = changed(rows: top(others: OTHER).freeze)
  end
end
