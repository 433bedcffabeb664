# frozen_string_literal: true

require_relative "collection"
Memscope::Loading.units :MallocProfile, :ObjectProfile

module Memscope
  # What endpoints and jobs allocate and retain: the numbers of each tag that RackTags, SidekiqTags or Memscope.tag has
  # set. A run is one call of Memscope.tag: a request, a job. What is allocated counts for the innermost run.
  #
  #   Memscope::ObjectProfile.start
  #   # … a few thousand requests, and two full garbage collections later
  #   row = Memscope.tags.first       # => the tag whose runs together retain most
  #   row.retained_objects            # => 2987.1, per 1,000 runs
  #   row.retained_objects_error      # => 104.3
  #
  # Retained objects are those that were allocated before the last but one major GC and that the last major GC found
  # alive: objects that requests in progress hold meanwhile are not among them. As runs go on, the number per run tends
  # to 0 for a cache that fills up, and stays the same for a leak. `later - earlier` has the numbers for the time
  # between the two readings.
  class Tags < Reading
    require_relative "tags/totals"
    require_relative "tags/row"

    # @return [Array<Row>] the tags whose runs together retain most come first, even if samples are too few for a number
    collection :rows, [Row]
    # @return [Float, nil] for a difference: time from the earlier reading to the later
    field :seconds, :number, sparse: true
    # @return [Integer, nil] the number of the running profile of objects in its process; nil if none is running
    field :session, :count, sparse: true
    # @return [Integer, nil] the number of the malloc profile that malloc_allocated_bytes comes from; nil if the
    #   allocator counts these bytes, or no malloc profile is running
    field :malloc_session, :count, sparse: true
    # @return [Windows, nil] what was sampled since the profile of objects began; nil if none is running
    field :profiled, Windows
    # @return [Windows, nil] what had been sampled at the last but one major GC; nil before the second major GC
    field :judged, Windows
    # @return [Float, nil] how many objects one sample stands for
    field :sample_objects, :number

    # Fields that need a profile of objects.
    OF_OBJECTS = %i[allocated_objects live_objects live_bytes retained_objects].freeze
    # Fields with the windows of a profile of objects.
    WINDOWS = %i[profiled judged].freeze
    # Seconds between two readings for metrics, unless an interval for ledgers is configured.
    INTERVAL = 60
    private_constant :OF_OBJECTS, :WINDOWS, :INTERVAL
    # In metrics, the name of the row that sums up the tags without a row of their own.
    #
    # @api private
    OTHER = "[other]"

    class << self
      # Implements Memscope.tags.
      #
      # @return [Tags]
      def read
        body = Native.tags
        body = { tags: [], reasons: { rows: body }, cost: Cost.of(:T2) } unless body.is_a?(Hash)
        malloc, unread = malloc_profile
        body[:cost] = Cost.sum([Cost.capture(body[:cost]), malloc.cost]) if malloc
        WINDOWS.each { |name| body[name] &&= Windows.capture(body[name]) }
        body.update(sessions(body, malloc))
        of(totals(body.delete(:tags), malloc), body, malloc: unread || !malloc.nil?)
      end

      # @api private
      # @param cache [TtlCache]
      # @param interval [Numeric, nil] seconds between two ledgers for metrics
      # @return [Tags] without the totals that a difference needs
      def read_for_metrics(cache, interval) = cache.fetch(interval || INTERVAL) { read.bounded }

      # A profile that began between the two readings counts from its beginning.
      #
      # @param earlier [Tags]
      # @param later [Tags]
      # @return [Tags] of the time between the readings, in the later reading's envelope
      def between(earlier, later)
        windows = windows_between(earlier, later)
        body = { seconds: (later.at - earlier.at).to_f, session: later.session, malloc_session: later.malloc_session,
                 sample_objects: sample_objects(later, windows[:judged]), cost: Cost.of(:T0),
                 reasons: later.reasons.slice(:profiled, :samples), **windows }
        of(totals_between(earlier, later), body, later.envelope, malloc: later.any?(&:malloc_live_bytes))
      end

      private

      # @return [Array(Profile, nil), Array(nil, String), Array(nil, nil)] the running profile; why it cannot be read
      def malloc_profile
        [(MallocProfile.snapshot if MallocProfile.running?), nil]
      rescue MallocProfile::Unavailable => e
        [nil, e.message]
      end

      def sessions(body, malloc)
        counted = body[:tags].any? { |tag| tag[:malloc_allocated_bytes] }
        { session: (Native.object_profile_session if body[:profiled]),
          malloc_session: (MallocProfile.session if malloc && !counted) }
      end

      def windows_between(earlier, later)
        same = earlier.session == later.session
        WINDOWS.to_h { |name| [name, later.public_send(name)&.since((earlier.public_send(name) if same))] }
      end

      # The smaller the share of allocations in windows, the more objects a sample stands for.
      def sample_objects(later, judged)
        judged ? later.sample_objects * later.profiled.windows_share / judged.windows_share : later.sample_objects
      end

      def totals_between(earlier, later)
        anew = Totals::SESSIONS.reject { |session, _| earlier.public_send(session) == later.public_send(session) }
        before = earlier.rows.to_h { |row| [row.name, row.totals.without(anew.values.flatten)] }
        later.map { |row| row.totals.since(before[row.name]) }
      end

      # Adds each tag's numbers from the malloc profile.
      def totals(tags, malloc)
        entries = malloc ? malloc.by(:tag).to_h { |entry| [entry.name, entry] } : {}
        tags.map do |tag|
          entry = entries[tag[:name]]
          tag[:malloc_live_bytes] = entry&.live_bytes
          tag[:malloc_allocated_bytes] ||= entry&.allocated_bytes
          Totals.capture(tag)
        end
      end

      def of(totals, body, envelope = nil, malloc:)
        rows = totals.sort_by(&:rank).map { |total| Row.of([total], **body.slice(:profiled, :judged, :sample_objects)) }
        reasons = rows.empty? ? { rows: :tags_unset } : missing(rows, body, malloc)
        capture({ seconds: nil, session: nil, malloc_session: nil, profiled: nil, judged: nil, sample_objects: nil,
                  **body, rows: rows, reasons: { **reasons, **body[:reasons] } }, envelope)
      end

      # Why a row lacks a number.
      def missing(rows, body, malloc)
        without = body[:reasons][:profiled] || :tags_without_profile
        { **OF_OBJECTS.to_h { |name| [name, body[:session] ? :tags_few_samples : without] },
          **(body[:session] && !body[:judged] ? { retained_objects: :tags_unjudged } : {}),
          **without_malloc(malloc) }
          .select { |name, _why| rows.any? { |row| row.public_send(name).nil? } }
      end

      # @param malloc [Boolean, String] whether a malloc profile was read; or why it could not be read
      def without_malloc(malloc)
        why = malloc == true ? :tags_few_malloc_samples : malloc
        { malloc_allocated_bytes: why || :tags_malloc_uncounted,
          malloc_live_bytes: why || :tags_without_malloc_profile }
      end
    end

    # The rows that a table shows: the first ones, and the sum of the others.
    #
    # @param most [Integer]
    # @return [Array<Row>] all rows; or, if there are more, the first `most` and a row such as "12 other tags"
    def top(most = 50)
      rest = rows.drop(most)
      return rows if rest.empty?

      others = Row.of(rest.map(&:totals), name: "#{rest.size} other tags", profiled: profiled, judged: judged,
                                          sample_objects: sample_objects)
      [*rows.first(most), others]
    end

    # @api private
    # @return [Tags] the rows of `top` without totals; the row that sums up the other tags is named "[other]"
    def bounded
      shown = top.map { |row| row.named(row.totals ? row.name : OTHER) }
      changed(rows: shown.freeze)
    end

    # What happened since an earlier reading of the same process.
    #
    # @param other [Tags] the earlier reading
    # @return [Tags]
    # @raise [TypeError] for a reading of another kind
    # @raise [ArgumentError] for a reading of another process
    def -(other)
      same = of_this_kind(other).pid == pid
      Field.refuse("Memscope::Tags#-: pid", other.pid, "#{pid}, as in the later reading") unless same
      bare = [*rows, *other.rows].find { |row| row.totals.nil? }
      Field.refuse("Memscope::Tags#-: rows", bare.name, "rows with totals, which a report of a worker lacks") if bare

      Tags.between(other, self)
    end

    # @api private
    # @return [Boolean] whether there are any runs
    def known? = !rows.empty?
  end
end
