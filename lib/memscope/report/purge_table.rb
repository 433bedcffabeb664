# frozen_string_literal: true

module Memscope
  class Report
    # What a purge returned, lever by lever: what was predicted, what came back, how long it took, and from which rows.
    class PurgeTable
      include Quantity

      # Rows that are shown by name; the others are summed up.
      ROWS = 8
      private_constant :ROWS

      # @param result [Purge::Result]
      # @param unicode [Boolean] false: plain ASCII
      def initialize(result, unicode: true)
        @result = result
        @page = Page.new(unicode: unicode)
      end

      # @return [String]
      def to_s
        sections = [[title], levers, outcome, rows, notes].reject(&:empty?)
        @page.encoded(sections.map { |lines| "#{lines.join("\n")}\n" }.join("\n"))
      end

      private

      def title
        @page.joined(["memscope #{@result.memscope}", "ruby #{@result.ruby}", "#{@result.allocator} serves malloc",
                      *("arena #{@result.arena}" if @result.arena), "pid #{@result.pid}"])
      end

      def levers
        return ["  nothing to pull"] if @result.levers.empty?

        heading = line("lever", "predicted MiB", @result.dry_run? ? [] : %w[returned ms])
        [heading, *@result.levers.map { |lever| lever_line(lever) }]
      end

      def lever_line(lever)
        done = @result.dry_run? ? [] : [known(lever.returned_bytes), format("%.1f", lever.wall_ms)]
        line(lever.name.name, predicted(lever), done, lever.gvl? ? "holds the GVL" : "")
      end

      def line(name, predicted, done, note = "")
        "  #{name.ljust(8)} #{predicted.rjust(16)} #{done.map { |text| text.rjust(10) }.join(' ')}  #{note}".rstrip
      end

      def predicted(lever)
        bounds = [lever.predicted_bytes, lever.predicted_max_bytes]
        return @page.unknown if bounds.any?(&:nil?)

        bounds.uniq.map { |bytes| mebibytes(bytes) }.uniq.join(" to ")
      end

      def known(bytes) = bytes ? mebibytes(bytes) : @page.unknown

      def outcome
        before = @result.before.rss_bytes
        after = @result.after&.rss_bytes
        return before ? ["  RSS #{mebibytes(before)} MiB; nothing was changed"] : [] unless before && after

        ["  RSS #{mebibytes(before)} MiB before, #{mebibytes(after)} after: " \
         "#{mebibytes(@result.returned_bytes)} returned", *settled]
      end

      def settled
        return [] unless @result.settled_bytes

        verdict = { true => "stayed down", false => "did not stay down", nil => "nothing was returned" }
        ["  #{@result.settle_seconds} s later #{mebibytes(@result.settled.rss_bytes)}: " \
         "#{verdict.fetch(@result.stayed_down?)}"]
      end

      def rows
        moved = @result.rows.reject { |_path, bytes| mebibytes(bytes) == "0.0" }.to_a
        shown = moved.first(ROWS).map { |path, bytes| [mebibytes(-bytes), path.name] }
        others = moved.drop(ROWS).sum { |_path, bytes| bytes }
        shown << [mebibytes(-others), "other rows"] unless others.zero?
        return [] if shown.empty?

        ["      MiB", *shown.map { |text, name| "#{(text.start_with?('-') ? text : "+#{text}").rjust(9)}  #{name}" }]
      end

      def notes
        reasons = @result.levers.filter_map { |lever| [lever.name, lever.reason] if lever.reason }.to_h
        { **@result.reasons, **reasons }.map { |id, why| @page.wrapped("#{id}: #{why}") }
      end
    end
  end
end
