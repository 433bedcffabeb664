# frozen_string_literal: true

module Memscope
  module Report
    # A profile of malloc or of objects, or the difference of two: the places that hold most, each with the line of the
    # application that called it, the native function that allocated most there, and the age of the memory. Then how the
    # profile was measured.
    class ProfilePage < ReadingPage
      # The numbers of several entries.
      Sum = Struct.new(:live_bytes, :error_bytes, :live_objects, :samples, :share)
      ROOTS = { bundler: "the Gemfile's directory", rails: "Rails.root", directory: "the working directory" }.freeze
      BACKENDS = { jemalloc: "jemalloc's profiler", imports: "GOT hooks (imports)" }.freeze
      # Numbers that the page omits, with their reasons.
      UNUSED = %i[allocated_bytes allocated_objects freed_bytes freed_objects allocator_live_bytes inflated_bytes
                  patched_imports patched_objects].freeze
      # Minimum columns of a place.
      NARROW = 24
      # Growth outside of malloc, in bytes, that is worth a sentence.
      OUTSIDE_BYTES = 10 * MEBIBYTE
      # A coverage above which older memory must have been freed.
      SURPLUS = 1.2

      def initialize(profile, by: :line, limit: 20, **display)
        super(profile, **display)
        @by = by
        @judged = profile.unjudged_generation unless profile.difference?
        @survivors = @judged && profile.survived_bytes.positive?
        @entries = ranked(profile.by(by)).select { |entry| !entry.live_bytes.zero? || entry.samples.positive? }
        @limit = [limit, @entries.size].min
        @signed = profile.difference?
        @old = @judged || (profile.generation unless @signed || by == :generation)
      end

      # The profile's total in one sentence.
      def summary = @signed ? change : state

      # Paragraphs: how the profile was measured, its coverage of malloc, its cost, and the application's root.
      def provenance = [[rate, *(coverage unless @signed)].join(" "), *([cost, *flaws].join(" ") unless @signed), *root]

      private

      def subject = [@reading.objects? ? "object profile" : "malloc profile", "pid #{@reading.pid}"]

      def sections = [[summary, *unseen].map { |text| @page.wrapped(text) }, table]

      def reasons = explained(@reading.reasons.except(*UNUSED))

      def footer = provenance.map { |text| @page.wrapped(text) }

      def state
        return text(:none_live) if @reading.samples.zero?

        text(estimated?(@reading) ? :live : :few_samples,
             time: duration((@reading.at - @reading.started_at).round), samples: counted(@reading.samples, "samples"),
             bytes: size(@reading.live_bytes), error: error, objects: objects, survival: survival)
      end

      # Sorts by the memory that survived a full GC, if any did: that is certain to be held, the rest may be garbage.
      def ranked(entries) = entries.sort_by.with_index { |entry, index| [-rank(entry), index] }

      def rank(entry) = @survivors ? @reading.survived(entry.generations) : entry.live_bytes

      def survival
        return unless @judged

        survived = @reading.survived_bytes
        name = if @judged.zero? then :unjudged
               elsif @reading.unjudged_bytes.zero? then :all_survived
               else survived.zero? ? :none_survived : :some_survived
               end
        " #{text(name, survived: size(survived), unjudged: size(@reading.unjudged_bytes))}"
      end

      def objects
        return unless @reading.objects?

        " in #{counted(@reading.live_objects, 'objects')} (#{@page.plus_minus}#{count(@reading.error_objects)})"
      end

      def error = "#{@page.plus_minus}#{size(@reading.error_bytes)}"

      def change
        bytes = @reading.live_bytes
        seconds = format("%.1f", @reading.seconds)
        return text(:unchanged, seconds: seconds) if @reading.stacks.empty?

        text(bytes.negative? ? :shrank : :grew, seconds: seconds, bytes: size(bytes.abs), error: error,
                                                before: size(@reading.earlier_live_bytes),
                                                after: size(@reading.earlier_live_bytes + bytes))
      end

      def table
        return [] if @entries.empty?

        hidden = @entries - shown
        sums = [*shown, *([sum(hidden)] if hidden.any?)]
        [listing(sums, hidden), *(say(:no_estimate) unless sums.all? { |one| estimated?(one) }), *chance]
      end

      def listing(sums, hidden)
        headings = ["MiB", @page.plus_minus, *("objects" if @reading.objects?), "samples", @signed ? "growth" : "share"]
        cells = sums.map { |one| cells(one, headings.size) }
        @room = [@page.room([headings, *cells]), NARROW].max
        texts = [*shown.map { |entry| lines(entry).join("\n") }, "#{count(hidden.size)} other #{noun(hidden)}"]
        @page.listing([*headings, noun([0])], cells.zip(texts).map(&:flatten), long: :lines)
      end

      # Of an Entry or a Sum. Empty instead of estimates from too few samples.
      def cells(sum, size)
        return [*[""] * (size - 2), number(sum.samples), ""] unless estimated?(sum)

        share = format("%.1f %%", 100 * sum.share) if sum.share
        [@signed ? signed_mebibytes(sum.live_bytes) : mebibytes(sum.live_bytes), cell(sum.error_bytes),
         *(number(sum.live_objects) if @reading.objects?), number(sum.samples), share.to_s]
      end

      def number(number) = @signed ? signed(number) : count(number)

      def estimated?(sum) = @reading.estimated?(sum.samples)

      # The error of several entries of an object profile is unknown: their samples are not independent
      # (Profile::Shares).
      def sum(entries)
        shares = entries.filter_map(&:share)
        squared = entries.sum { |entry| entry.error_bytes**2 } if entries.one? || !@reading.objects?
        Sum.new(entries.sum(&:live_bytes), squared && Integer.sqrt(squared), entries.sum(&:live_objects),
                entries.sum(&:samples), (shares.sum if shares.any?))
      end

      # The largest entries. Entries with too few samples for an estimate only if there are no others. For a difference,
      # the entries that grew most, and those that shrank most.
      def shown
        return known.first(@limit) unless @signed
        return @entries if @entries.size <= @limit

        shrunk = @entries.last(@limit / 4).select { |entry| entry.live_bytes.negative? }
        @entries.first(@limit - shrunk.size) + shrunk
      end

      def known = @entries.select { |entry| estimated?(entry) }.then { |some| some.empty? ? @entries : some }

      def noun(entries) = text(:"#{entries.one? ? 'one' : 'some'}.#{@by}")

      def rate
        error = text(:error, sign: @page.plus_minus, percent: @reading.objects? ? "99" : "99.7")
        return "#{text(:windows, windows: counted(@reading.windows, 'windows'))} #{error}" if @reading.objects?

        "#{text(:rate, backend: BACKENDS.fetch(@reading.backend), bytes: size(@reading.rate_bytes))} #{error}"
      end

      def cost
        overhead = @reading.overhead
        text(@reading.running? ? :cost_so_far : :cost_in_all,
             samples: counted(overhead.samples_taken, "samples"), bytes: size(overhead.table_bytes),
             time: milliseconds(overhead.nanoseconds / 1000))
      end

      def root
        path = @reading.application_root or return
        "Application root: #{path} (#{ROOTS.fetch(@reading.application_root_source, 'unknown source')})."
      end

      def lines(entry)
        first, *rest = place(entry)
        more = [*rest, *held(entry), *(amounts(entry) if estimated?(entry))]
        [first, *more.map { |text| @page.ending(text, room - 2) }]
      end

      def amounts(entry)
        [*beside("called from", entry, entry.callers), *beside("allocated at", entry, entry.lines),
         *(native(entry.native) if entry.native && @by != :native), *age(entry)]
      end

      # Columns of a place.
      attr_reader :room

      # The function's name and, if there is room, the object file's, which matters less.
      def native(text)
        whole = "by #{text}"
        whole.length <= room - 2 ? whole : whole.sub(/ \([^()]+\)\z/, "")
      end

      # The place and its method, on two lines if one line is too short for them.
      def place(entry)
        return [@page.ending(entry.name, room)] unless entry.lineno

        whole = @reading.local(entry.to_s)
        return [whole] if whole.length <= room

        [@page.ending(whole.delete_suffix(" in #{entry.name}"), room), "in #{entry.name}"]
      end

      def held(entry)
        holder = (@reading.holder(entry) if @by == :line && !@signed) or return
        "held by #{holder.to_s(unicode: @page.unicode?)}".scan(/\S.{0,#{room - 3}}(?=\s|\z)|\S{1,#{room - 2}}/)
      end

      # The first of the lines and, if it does not account for all of the entry's bytes, its bytes and those of the
      # other lines.
      def beside(word, entry, lines)
        (place, bytes), *others = lines
        return [] unless place

        rest = "; #{counted(others.size, 'other lines')}: #{amount(others.sum(&:last))}" if others.any?
        ["#{word} #{@page.ending(@reading.local(place), room - word.length - 3)}",
         *("(#{amount(bytes)}#{rest})" unless bytes == entry.live_bytes)]
      end

      def amount(bytes) = @signed ? "#{signed_mebibytes(bytes)} MiB" : size(bytes)

      def age(entry)
        old = entry.generations.sum { |generation, live| generation < @old.to_i ? live : 0 }
        "#{size(old)} #{@judged ? 'survived a full GC' : 'is of older generations'}" unless old.zero?
      end

      # A sentence if the order of the first entries may be chance.
      def chance
        entries = shown.select { |entry| estimated?(entry) }
        tie(entries.map { |entry| [rank(entry), entry.error_bytes] }, noun([]))
      end

      def coverage
        share = @reading.coverage or return

        text(share > SURPLUS ? :surplus : :coverage, share: format("%.0f", 100 * share))
      end

      # Sentences on growth that the samples do not account for.
      def unseen = [*(unseen_calls if @reading.backend == :imports), *outside_malloc]

      def unseen_calls
        grown = @reading.allocator_grown_bytes or return
        seen = @reading.live_bytes + @reading.own_bytes.to_i
        # The root: the error of the samples that so much growth leads to.
        return unless grown - seen >= [MEBIBYTE, 3 * Math.sqrt([grown, 0].max * @reading.rate_bytes)].max

        text(:unseen_calls, grown: size(grown), seen: size([seen, 0].max))
      end

      def outside_malloc
        grown = @reading.rss_grown_bytes or return
        malloc = [@reading.allocator_grown_bytes || @reading.live_bytes, 0].max
        return unless grown - malloc >= [OUTSIDE_BYTES, grown / 10].max

        text(:outside_malloc, grown: size(grown), malloc: size(malloc), pid: @reading.pid)
      end

      # The samples and frees that were missed, and the bytes that sampling adds to the allocator's own numbers.
      def flaws
        names = %i[dropped_samples lost_frees inflated_bytes]
        dropped, lost, added = @reading.overhead.to_h.values_at(*names).map(&:to_i)
        [*(text(:dropped, samples: counted(dropped, "samples")) if dropped.positive?),
         *(text(:lost, frees: counted(lost, "frees")) if lost.positive?),
         *(text(:added, bytes: size(added)) if added.positive?)]
      end
    end
  end
end
