# frozen_string_literal: true

module Memscope
  module Boxes
    # The lives of one service: the processes of one application and role, one after the other, by their boxes.
    # @api private
    class Lives
      # Seconds after the boot in which the smallest RSS is the floor: most caches are warm by then, and leaks small.
      SETTLED = (600..1800)
      WORDS = Words.beside(__FILE__)

      # The lives of one release: bytes after the boot and per hour, limits, and numbers of threads.
      Release = Struct.new(:name, :floors, :rates, :limits, :threads)

      # @return [Array<Postmortem>] of those that have ended, the last at the end
      attr_reader :deaths

      # @return [Lives, nil] nil if that process has no box
      def self.of(reading, directory: nil, native: Native)
        boxes = Boxes.all(*directory, native: native)
        own = boxes.find { |box| box.identity.pid == reading.pid && reading.process&.same?(box.process) }
        own && new(own, boxes)
      rescue SystemCallError, Sockets::Refused
        nil
      end

      def initialize(own, boxes)
        @own = own
        @boxes = boxes.select { |box| box.identity.service == own.identity.service }.sort_by { |box| began(box) }
        @deaths = @boxes.reject(&:running?).map { |box| Postmortem.of(box, others: boxes) }.sort_by(&:last_seen_at)
      end

      # @return [History] continued backwards by those of the processes whose place this one has taken
      def before(history)
        earlier = @boxes.select { |box| box.identity.index == @own.identity.index && began(box) < began(@own) }
        earlier.reverse.filter_map(&:history).reduce(history, :after)
      end

      # @return [Array<Array(Time, String)>] the beginnings of releases other than the first
      def releases
        named = @boxes.select { |box| box.identity.release }
        named.map(&:identity).uniq(&:release).drop(1).map { |identity| [identity.began_at, identity.release] }
      end

      # @return [String, nil] how the last release differs from the one before it, nil if that is not known
      def sentence
        last = @boxes.group_by { |box| box.identity.release }.except(nil).values.last(2)
        earlier, later = last.map { |boxes| release(boxes) }
        return unless later && earlier.floors.any? && later.floors.any?

        text = WORDS.fill(:since, release: later.name, floor: floor(earlier, later), growth: growth(earlier, later),
                                  lives: "#{later.floors.size} and #{earlier.floors.size}")
        limits = mixed(:limits, earlier, later) { |bytes| Quantity.size(bytes) }
        [text, limits, mixed(:threads, earlier, later)].compact.join(" ")
      end

      private

      def began(box) = box.identity.began_at

      def release(boxes)
        Release.new(boxes.first.identity.release, boxes.filter_map { |box| settled(box) },
                    boxes.filter_map { |box| box.slots[:verdict]&.bytes_per_hour },
                    boxes.filter_map { |box| box.identity.limit_bytes },
                    boxes.filter_map { |box| box.slots[:threads]&.count })
      end

      def settled(box)
        history = box.history
        return unless history&.part(:rss)

        from, to = SETTLED.minmax.map { |seconds| began(box) + seconds }
        history.points(:rss, since: from).select { |point| point.at.between?(from, to) }.filter_map(&:min).min
      end

      def floor(earlier, later)
        change, error = [later, earlier].map { |one| mean(one.floors) }.transpose
        change = change.reduce(:-).round
        sign = " (+- #{Quantity.mebibytes(Math.hypot(*error).round)})" if error.all?
        "#{Quantity.size(change.abs)} #{change.negative? ? 'lower' : 'higher'}#{sign}"
      end

      # The mean, and its standard error, nil for one value.
      def mean(values)
        mean = values.sum.fdiv(values.size)
        squares = values.sum { |value| (value - mean)**2 }
        [mean, (Math.sqrt(squares / (values.size - 1) / values.size) if values.size > 1)]
      end

      def growth(earlier, later)
        return unless earlier.rates.any? && later.rates.any?

        after, before = [later, earlier].map { |one| Quantity.mebibytes(mean(one.rates).first.round) }
        WORDS.fill(:growth, after: after, before: before)
      end

      # Says what is averaged although it differs.
      def mixed(name, *releases, &)
        range = releases.flat_map(&name).minmax.uniq
        range = range.map(&) if block_given?
        WORDS.fill(name, range: range.join(" to ")) if range.size > 1
      end
    end
  end
end
