# frozen_string_literal: true

module Memscope
  class Report
    # A process as it is seen from outside: what the kernel tells, marked as such.
    class OutsidePage
      include Quantity

      FIGURES = {
        rss_bytes: "resident (RSS)", pss_bytes: "of it, shared pages divided by their sharers (PSS)",
        uss_bytes: "of it, its own alone (USS)", shared_bytes: "of it, shared with other processes",
        anonymous_bytes: "of it, without a file: heaps and stacks", file_bytes: "of it, of files",
        shared_memory_bytes: "of it, shared memory", peak_rss_bytes: "resident at most so far",
        swap_bytes: "swapped out"
      }.freeze
      private_constant :FIGURES

      # @param outside [Outside]
      # @param unicode [Boolean] false: plain ASCII
      def initialize(outside, unicode: Encoding.default_external == Encoding::UTF_8)
        @outside = outside
        @page = Page.new(unicode: unicode)
      end

      # @return [String]
      def to_s
        parts = [[title], limits, figures, malloc, cgroup, reasons, [footer]].reject(&:empty?)
        @page.encoded(parts.map { |lines| "#{lines.join("\n")}\n" }.join("\n"))
      end

      private

      def title
        @page.joined(["memscope #{@outside.memscope}", "pid #{@outside.pid} seen from outside", "uid #{@outside.uid}"])
      end

      def limits
        way = if @outside.listens? then "It listens, and tells more itself: memscope report --pid #{@outside.pid}."
              else "Where in malloc and in Ruby it is, only the process can tell: start it with MEMSCOPE_LISTEN=1."
              end
        [@page.wrapped(@outside.command.to_s[0, 200]), @page.wrapped("This is what the kernel tells of it. #{way}")]
      end

      def figures
        known = FIGURES.keys.select { |name| @outside.public_send(name) }
        ["      MiB", *known.map { |name| "#{mebibytes(@outside.public_send(name)).rjust(9)}  #{FIGURES[name]}" }]
      end

      def malloc
        return [] if @outside.reasons.key?(:mallocs)

        libraries = @outside.mallocs.map { |library| "#{library.name}#{preload(library)}, #{library.path}" }
        libraries << "none; one that is linked into the program is not seen" if libraries.empty?
        settings = @outside.variables.to_h.except(:LD_PRELOAD).map { |name, value| "#{name}=#{value}" }
        ["  libraries with a malloc that are mapped:", *libraries.map { |text| @page.wrapped(text, indent: "    ") },
         *settings.map { |text| @page.wrapped("set: #{text}") }]
      end

      def preload(library) = library.preloaded? ? " (preloaded)" : ""

      def cgroup
        group = @outside.cgroup
        return [] unless group && group.version != :none

        limit = group.limit_bytes ? "limit #{size(group.limit_bytes)}" : "no limit"
        used = "working set #{size(group.working_set_bytes)}" if group.working_set_bytes
        [@page.wrapped([("cgroup #{group.path}:" if group.path), [limit, used].compact.join(", ")].compact.join(" "))]
      end

      def reasons = @outside.reasons.map { |id, why| @page.wrapped("#{id}: #{why}") }

      def footer = "  read in #{milliseconds(@outside.cost.wall_us)}"
    end
  end
end
