# frozen_string_literal: true

module Memscope
  module Report
    # A Postmortem: how the process ended, where its memory was, what had grown, and what ran.
    class PostmortemPage < ReadingPage
      ROWS = 5
      GROWTH = %i[hour_bytes life_bytes].freeze

      private

      def text(name, **figures) = super(:"death.#{name}", **figures)

      def subject = [@reading.identity.role, "pid #{@reading.pid}"]

      def sections
        [[@page.wrapped(@reading.ended_why), life, limit], rows, verdict, running, *lines, retainers, classes, problems,
         next_step(@reading.remedy)]
      end

      def footer = "  #{text(:box, path: @reading.path)}"

      def life
        whose = @reading.identity
        say(:life, service: whose.service, release: (", release #{whose.release}" if whose.release),
                   host: (" on #{whose.hostname}" if whose.hostname), from: moment(whose.began_at),
                   to: moment(@reading.last_seen_at), time: duration(@reading.last_seen_at - whose.began_at))
      end

      def limit
        limit = @reading.limit
        return say(:no_limit, rss: size(@reading.rss_bytes)) unless limit&.limit_bytes

        say(:limit, rss: size(@reading.rss_bytes), limit: size(limit.limit_bytes),
                    used: size(limit.working_set_bytes), left: size(limit.headroom_bytes))
      end

      # The rows of the last ledger, with their growth by the history.
      def rows
        ledger = @reading.ledger or return
        growth = @reading.growth.to_h { |row| [row.id, row] }
        rows = ledger.rows.filter(&:visible?).map { |row| [row.bytes, [*growth[row.id]], row.label] }
        rows << [ledger.rss_bytes, growth.values, text(:sum, at: moment(ledger.at))]
        since = @reading.growth_since&.strftime("+since %m-%d %H:%M") || "+in all"
        @page.listing(["MiB", "+last hour", since, ""], rows.map do |bytes, grown, label|
          [mebibytes(bytes), *GROWTH.map { |name| change(grown.map(&name)) }, label]
        end)
      end

      def change(bytes) = bytes.empty? || bytes.include?(nil) ? @page.unknown : signed_mebibytes(bytes.sum)

      def verdict
        verdict = @reading.verdict or return
        verdict.kind == :too_early ? say(:too_early) : @page.wrapped(verdict.sentence)
      end

      def running
        listing(@reading.tags&.runs, ["", text(:ran)]) do |run|
          [duration([@reading.last_seen_at - run.since, 0].max), run.tag]
        end
      end

      def lines
        return [say(:no_samples)] if @reading.lines && [*@reading.lines.malloc, *@reading.lines.objects].empty?

        %i[malloc objects].map do |kind|
          listing(@reading.lines&.public_send(kind), ["MiB", text(kind)]) do |line|
            [cell(line.live_bytes), [line.line, line.method_name].compact.join(" in ")]
          end
        end
      end

      def retainers
        listing(@reading.heap&.retainers, ["MiB", "objects", since(:retained, @reading.heap)], long: :lines) do |row|
          [cell(row.bytes), counted_cell(row.objects), [row.name, *row.path].join("\n")]
        end
      end

      def classes
        listing(@reading.census&.classes, ["MiB", "objects", since(:counted, @reading.census)]) do |row|
          [cell(row.bytes), count(row.objects), Terms.explained(row.name)]
        end
      end

      def listing(rows, headings, **more, &) = (@page.listing(headings, rows.first(ROWS).map(&), **more) if rows&.any?)

      def since(name, part) = part && text(name, at: moment(part.at))

      def problems = @reading.findings&.map { |one| @page.wrapped("#{one.severity}: #{one.title || one.id}") }

      def moment(time) = time.strftime("%F %T")
    end
  end
end
