# frozen_string_literal: true

module Memscope
  module Report
    # A dump: its path, its size, and the tools that open it.
    class DumpPage < ReadingPage
      private

      # The process of a converted dump is unknown.
      def title = @reading.pause_ms ? super : "memscope #{@reading.memscope}"

      def reasons = sentences([])

      def sections
        counts = text(:dump, objects: counted(@reading.objects, "objects"), size: mebibytes(@reading.bytes),
                             references: counted(@reading.references, "references"))
        [["  #{@reading.path}", "  #{counts}", "  #{text(:"open.#{@reading.format}")}"]]
      end

      def footer
        wall, gvl, fork = [@reading.cost.wall_us, @reading.cost.gvl_us, @reading.pause_ms&.*(1000)]
                          .map { |time| time && milliseconds(time) }
        "  #{text(fork ? :written_by_child : :written, wall: wall, gvl: gvl, fork: fork)}"
      end
    end
  end
end
