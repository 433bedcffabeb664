# frozen_string_literal: true

module Memscope
  module Report
    # A dump: its path, its size, and the tools that open it.
    class DumpPage < ReadingPage
      OPENS = { perfetto: "open it at https://ui.perfetto.dev, which uploads nothing",
                heapsnapshot: "load it in the Memory panel of Chrome's DevTools",
                objspace: "read it with memscope heap FILE, heapy or sheap" }.freeze
      private_constant :OPENS

      private

      # The process of a converted dump is unknown.
      def title = @reading.pause_ms ? super : "memscope #{@reading.memscope}"

      def reasons = sentences([])

      def sections
        counts = "#{counted(@reading.objects, 'objects')}, #{counted(@reading.references, 'references')}"
        [["  #{@reading.path}", "  #{counts}, #{mebibytes(@reading.bytes)} MiB, without objects' contents",
          "  #{OPENS.fetch(@reading.format)}"]]
      end

      def footer = "  #{written}"

      def written
        wall = milliseconds(@reading.cost.wall_us)
        return "written in #{wall}" unless @reading.pause_ms

        "written in #{wall} (#{milliseconds(@reading.cost.gvl_us)} under the GVL), " \
          "by a child whose fork took #{milliseconds(@reading.pause_ms * 1000)}"
      end
    end
  end
end
