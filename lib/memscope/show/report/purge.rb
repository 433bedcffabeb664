# frozen_string_literal: true

module Memscope
  module Report
    # A purge, by lever: how much was predicted, how much was returned, and how long the lever took; then the rows that
    # the memory came from.
    class PurgePage < ReadingPage
      ROWS = 8

      private

      def subject = ["#{@reading.allocator} serves malloc", "pid #{@reading.pid}"]

      def sections = [levers, outcome, rows]

      def levers
        return "  #{text(:no_levers)}" if @reading.levers.empty?

        headings = @reading.dry_run? ? ["machine gains"] : ["returned", "machine gains", "ms"]
        @page.listing(["predicted MiB", *headings, "lever"],
                      [*@reading.levers.map { |lever| lever_cells(lever) }, *total])
      end

      # The sum of several levers in a dry run, if all of them are predicted.
      def total
        counted = @reading.counted
        return unless @reading.dry_run? && counted.size > 1 && counted.all?(&:predicted)

        [[range_cell(@reading.predicted), range_cell(@reading.predicted_private), "in all"]]
      end

      def lever_cells(lever)
        name = lever.gvl? ? "#{lever.name}, which #{stop(lever)}" : lever.name.name
        return [range_cell(lever.predicted), range_cell(lever.predicted_private), name] if @reading.dry_run?

        [range_cell(lever.predicted), cell(lever.returned_bytes), cell(lever.returned_private_bytes),
         format("%.1f", lever.wall_ms || 0), name]
      end

      def stop(lever)
        milliseconds = lever.predicted_pause_ms if @reading.dry_run?
        milliseconds ? text(:stops, pause: pause(milliseconds)) : text(:holds)
      end

      def outcome
        before, after = [@reading.before, @reading.after].map { |ledger| ledger&.rss_bytes }
        machine = gained
        returned = ": #{mebibytes(@reading.returned_bytes)} returned" unless machine
        now = "; #{text(@reading.finished_gc? ? :only_finished_gc : :nothing_changed)}"
        now = " before, #{mebibytes(after)} after#{returned}" if after
        [*(@page.wrapped("RSS #{mebibytes(before)} MiB#{now}") if before), *machine, *(garbage unless after)]
      end

      def gained
        fields = @reading.dry_run? ? %i[predicted predicted_private] : %i[returned_bytes returned_private_bytes]
        gain(*fields.map { |field| @reading.public_send(field) })&.then { |text| @page.wrapped(text) }
      end

      # Levers after gc also return memory that gc has freed: an unknown amount, unless gc itself was predicted.
      def garbage
        most = @reading.before.garbage_max_bytes
        return @page.wrapped(LedgerPage.of_collection(@reading.before.collected)) if @reading.before.collected
        return unless most && @reading.levers.any? { |lever| lever.name == :gc && lever.predicted.nil? }

        say(:left_out, bytes: size(most))
      end

      def rows
        moved = @reading.rows.reject { |_path, bytes| mebibytes(bytes) == "0.0" }.to_a
        shown = moved.first(ROWS).map { |path, bytes| [-bytes, path.name] }
        others = moved.drop(ROWS).sum { |_path, bytes| bytes }
        shown << [-others, "other rows"] unless others.zero?
        @page.listing(%w[MiB row], shown.map { |bytes, name| [signed_mebibytes(bytes), name] }) if shown.any?
      end

      def reasons = explained(@reading.all_reasons)
    end
  end
end
