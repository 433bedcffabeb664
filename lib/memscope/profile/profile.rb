# frozen_string_literal: true

require "rbconfig"

module Memscope
  Record.declare(__FILE__)

  # Which Ruby lines allocated live malloc memory, or live objects: the allocations sampled since profiling began that
  # are still live. The numbers of bytes and objects are estimates. Live bytes come with their standard error and number
  # of samples.
  #
  #   profile = Memscope::MallocProfile.snapshot
  #   profile.by(:line).first               # => the line with most live memory
  #   puts profile                          # a text report of these lines
  #   (later - profile).by(:line).first     # => the line that grew most, before and after
  #   later.growth_since(profile).to_html   # => a flame graph of the growth
  #   File.write("heap.html", profile.to_html)
  class Profile < Reading
    require_relative "stack"

    %i[Application Growth Grouping Leaks Lease Libraries Pprof Profiler Shares Speedscope].each do |name|
      autoload name, File.join(__dir__, "#{name.downcase}.rb")
    end

    # The groupings of `by` in a profile of malloc's memory.
    GROUPINGS = %i[line caller method native library stack generation tag thread].freeze
    # The groupings of `by` in a profile of objects.
    OBJECT_GROUPINGS = %i[line caller method class library stack generation tag thread].freeze
    # The formats that a profile can be written in, by the names that the command line takes, with their methods.
    FORMATS = { text: :to_s, json: :to_json, speedscope: :to_speedscope, pprof: :to_pprof, html: :to_html }.freeze
    # The fields that only a profile of objects has: the first three in each stack, all but the first in the whole.
    OF_OBJECTS = %i[shares live_objects error_objects windows allocations windows_share equal_windows].freeze

    # The fields that are known for the whole process only.
    WHOLE_ONLY = { coverage: nil, own_bytes: nil, allocator_grown_bytes: nil, rss_grown_bytes: nil }.freeze
    private_constant :WHOLE_ONLY, :OF_OBJECTS

    class << self
      # Adds the library of each line, and leaves out memscope's own allocations: only the profiled process knows the
      # directories of its Ruby, gems and application.
      def capture(body, envelope = nil)
        application = Application.current
        reasons = application.root ? {} : { application_root: "the working directory does not exist any more" }
        frames = body[:frames].map { |frame| Libraries.attributed(frame, application) }
        own, stacks = body[:stacks].partition { |stack| Libraries.memscopes?(frames.values_at(*stack[:frames])) }
        sums = %i[live_bytes samples live_objects].to_h { |sum| [sum, stacks.sum { |stack| stack[sum] }] }
        super({ application_root: application.root, application_root_source: application.source, **body, frames: frames,
                own_bytes: own.sum { |stack| stack[:live_bytes] }, **sums.slice(*body.keys), stacks: stacks,
                reasons: { **reasons, **body[:reasons] } }, envelope).with_errors
      end

      # @api private
      # @return [Profile] checked: stacks refer to existing frames, and their numbers sum to the totals
      def load(hash, where)
        super.tap do |profile|
          check_known(profile, OF_OBJECTS.drop(1), where) if profile.objects?
          profile.stacks.each_with_index { |stack, index| check(stack, profile, [[where, :stacks], index]) }
          %i[live_bytes samples].each do |number|
            sum = profile.stacks.sum(&number)
            given = profile.public_send(number)
            Loader.refuse([where, number], given, "#{sum}, the sum of the stacks'") unless given == sum
          end
        end
      end

      private

      def check_known(part, fields, where)
        unknown = fields.find { |field| part.public_send(field).nil? }
        Loader.refuse([where, unknown], nil, "a value, since these are samples of objects") if unknown
      end

      def check(stack, profile, where)
        allowed = 0...profile.frames.size
        wrong = stack.frames.reject { |frame| frame.is_a?(Integer) && allowed.cover?(frame) }
        Loader.refuse([where, :frames], wrong.first, "indexes into frames, 0 to #{allowed.max}") unless wrong.empty?
        check_known(stack, OF_OBJECTS.first(3), where) if profile.objects?
        fell = Stack::GROWING.find { |number| stack.public_send(number)&.negative? } unless profile.difference?
        Loader.refuse([where, fell], stack.public_send(fell), "an Integer of 0 or more") if fell
      end
    end

    # @api private
    def judged_up_to(generation) = changed(unjudged_generation: generation)

    # @api private
    def held_by(holders) = changed(holders: holders.freeze)

    # @param entry [Entry] of a line
    # @return [Holder, nil] the known retainer of its objects
    def holder(entry)
      holders&.find { |holder| holder.path == entry.path && holder.lineno == entry.lineno } if entry.lineno
    end

    # The part of the profile that was allocated in some generations, without numbers that are known only for the whole
    # process.
    # @api private
    def part(generations)
      of_stacks(stacks.select { |stack| generations.cover?(stack.generation) },
                generation: generations.max || generation)
    end

    # @api private
    def tagged(tag) = of_stacks(stacks.select { |stack| stack.tag == tag })

    # @return [Integer, nil] live bytes that have survived a major GC since they were allocated; nil if that is unknown
    def survived_bytes = survived(stacks.map { |stack| [stack.generation, stack.live_bytes] })

    # @return [Integer, nil] live bytes that no major GC has judged yet; nil if that is unknown
    def unjudged_bytes = survived_bytes && (live_bytes - survived_bytes)

    # @api private
    # @return [Integer, nil] the part of these live bytes, by generation, that has survived a major GC
    def survived(bytes)
      unjudged_generation && bytes.sum { |generation, live| generation < unjudged_generation ? live : 0 }
    end

    # The growth since an earlier profile of the same process, with one standard error of each change, by every grouping
    # but :stack: `by(:line)`, `by(:tag)`.
    #
    # @param other [Profile] the earlier one
    # @return [Diff]
    # @raise [TypeError] unless the other is a profile
    # @raise [ArgumentError] if the other's process, rate or backend differs
    def -(other)
      diff = Loading.unit(:Diff)
      growth = growth_since(other)
      groups = (groupings - [:stack]).to_h { |grouping| [grouping, Growth.rows(other, growth, grouping)] }
      diff.between(other, self, groups: groups, reasons: growth.reasons)
    end

    # The growth since an earlier profile of the same process as a profile: its stacks' numbers are changes, and it goes
    # to every format.
    #
    # @param other [Profile] the earlier one
    # @return [Profile] in this profile's envelope, at no cost
    # @raise [TypeError, ArgumentError] as for `-`
    def growth_since(other) = changed(**Growth.values(of_this_kind(other), self)).with_errors

    # @return [Float, nil] time from the earlier profile of a growth to the later; nil for a profile as it was read
    def seconds = since && (at - since).to_f

    # Groups of stacks, the largest first. Their numbers sum to the totals.
    #
    # - :line, the line of a Ruby file nearest to the allocation, preferably outside of Memscope.tag and the tagging
    #   middleware; if there is none, the state that explains why, or the native function
    # - :caller, the line of the application nearest to the allocation: the line of :line itself or, if that is in a
    #   gem or the standard library, the application's line that called into the gem or the library; if there is none,
    #   "[no line of the application]", or the state that explains why no line is known
    # - :method, the method of the line nearest to the allocation
    # - :native, the native function nearest to the allocation, preferably outside the C library, Ruby and the
    #   allocator
    # - :library, the library of the nearest native function outside the C library, Ruby and the allocator, or else of
    #   the line of :line: a gem, "Ruby standard library", "application" or a shared object
    # - :class, of objects
    # - :stack, :generation, :tag, :thread
    #
    # @param grouping [Symbol] one of `groupings`
    # @return [Array<Entry>]
    # @raise [ArgumentError] for any other grouping
    def by(grouping)
      Field.choice(:grouping, grouping, groupings, call: "#{self.class}#by")
      Grouping.new(self).entries(grouping)
    end

    # @return [Array<Symbol>] GROUPINGS, or OBJECT_GROUPINGS for objects
    def groupings = objects? ? OBJECT_GROUPINGS : GROUPINGS

    # @return [Boolean] whether it is a profile of Ruby's objects, and not of malloc's memory
    def objects? = backend == :objects

    # @api private
    # @return [Boolean] whether that many samples are enough for estimates to mean something
    def estimated?(samples) = !objects? || samples.abs >= Entry::ENOUGH_SAMPLES

    # @api private
    # @return [Numeric, nil] an estimate of this profile, or of an entry of it; nil if there are too few samples
    def estimate(part, number) = (part.public_send(number) if estimated?(part.samples))

    # @api private
    def with_errors = changed(**errors_of(stacks))

    # @api private
    # @return [Hash{Symbol => Integer}] one standard error of the sums of these stacks' numbers
    def errors_of(some)
      return { error_bytes: Integer.sqrt(some.sum { |stack| stack.error_bytes**2 }) } unless objects?

      { error_bytes: Shares.error(some, Shares::BYTES, self), error_objects: Shares.error(some, Shares::OBJECTS, self) }
    end

    # @return [Integer] the sum of all stacks' live bytes
    def total_live_bytes = live_bytes

    # @return [Boolean] whether the bytes allocated and freed since profiling began are known
    def allocations? = !stacks.empty? && stacks.all?(&:allocated_bytes)

    # @api private
    # @return [String] a text that begins with a path, without the application's root
    def local(place) = application_root ? place.delete_prefix("#{application_root}/") : place

    # @api private
    def difference? = !since.nil?

    # A report for people: 80 columns, plain ASCII unless the locale is UTF-8.
    #
    # @param by [Symbol] one of `groupings`
    # @param limit [Integer] the maximum number of entries
    # @param options [Hash] those of Reading#to_s
    # @return [String]
    # @raise [ArgumentError] for another grouping, or a limit other than a positive Integer
    def to_s(by: :line, limit: 20, **options)
      positive = limit.is_a?(Integer) && limit.positive?
      Field.refuse(:limit, limit, "an Integer of 1 or more", call: "#{self.class}#to_s") unless positive
      super
    end

    # For https://www.speedscope.app. A growth has one profile of growth and one of shrinkage.
    #
    # @return [String] JSON
    def to_speedscope = Loading.unit(:Speedscope, Profile).new(self).to_s

    # For `go tool pprof`, Pyroscope, Parca: gzipped profile.proto.
    #
    # @return [String] binary; the same for the same profile
    def to_pprof = Loading.unit(:Pprof, Profile).new([[self, {}]]).to_s

    # A self-contained page with a flame graph: no network, no other file. Widths are live bytes; in a growth,
    # their changes, red for growth and blue for shrinkage.
    #
    # @param back [String, nil] the address that a link "Back to the profile" leads to; nil for no link
    # @return [String] HTML
    def to_html(back: nil) = flame_graph(back)

    # @api private
    # @param options [Hash{Symbol => Object}] those of to_s; other formats ignore them
    def formatted(format, **options)
      return to_s(**options) if format == :text

      text = public_send(FORMATS.fetch(format))
      %i[json speedscope].include?(format) ? "#{text}\n" : text
    end

    private

    def of_stacks(kept, **changes)
      changed(**changes, stacks: kept, **WHOLE_ONLY, live_bytes: kept.sum(&:live_bytes), samples: kept.sum(&:samples),
                         live_objects: live_objects && kept.sum(&:live_objects)).with_errors
    end

    def shown_values = { **super, started_at: started_at, since: since }.compact
  end
end
