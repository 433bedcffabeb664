# frozen_string_literal: true

require_relative "facade"
require_relative "report/quantity"
require_relative "report/page"
require_relative "report/row_items"
require_relative "report/table"
require_relative "report/changes"
require_relative "report/findings"

module Memscope
  # A ledger as text for people: the two numbers that disagree, and the rows that explain it. 80 columns.
  #
  # "Ruby says" is what live slots hold, and with `objects: true` what live objects say they hold through malloc.
  class Report
    include Quantity

    SCANS = { pagemap_scan: "kernel scan", pagemap: "pagemap", smaps: "smaps" }.freeze
    # By kind of reading: the file, and the class in it.
    RENDERERS = {
      "ledger" => ["report"], "diff" => ["report/changes", :Changes],
      "arenas" => ["report/arenas_table", :ArenasTable],
      "size_classes" => ["report/size_classes_table", :SizeClassesTable],
      "fragmentation" => ["report/fragmentation_page", :FragmentationPage],
      "external_process" => ["report/outside_page", :OutsidePage],
      "mappings" => ["report/mappings_table", :MappingsTable], "workers" => ["report/workers_table", :WorkersTable]
    }.freeze
    private_constant :SCANS, :RENDERERS

    # @param reading [Reading]
    # @param unicode [Boolean] false: plain ASCII
    # @param options [Hash] of the kind of reading
    # @return [String] for people; what `inspect` returns of a reading that has no page and no table
    def self.render(reading, unicode: true, **options)
      file, name = RENDERERS[reading.kind]
      return reading.inspect unless file

      require_relative file
      renderer = name ? const_get(name, false) : self
      renderer.new(reading, unicode: unicode, **options).to_s
    end

    # Prints a ledger, with box-drawing characters where the io's encoding (else the locale's) is UTF-8.
    #
    # @param ledger [Ledger]
    # @param io [IO, #write]
    # @return [nil]
    # @raise [ArgumentError] when `io` cannot be written to
    def self.print(ledger, io)
      unless io.respond_to?(:write)
        raise ArgumentError, "Memscope.report: io: given #{io.inspect}, allowed: an IO or another object with #write"
      end

      io.write(new(ledger, unicode: encoding(io) == Encoding::UTF_8).to_s)
      nil
    end

    # @param io [IO, #write]
    # @return [Encoding] what is written there: the io's, else the locale's
    def self.encoding(io)
      (io.external_encoding if io.respond_to?(:external_encoding)) || Encoding.default_external
    end

    # @param ledger [Ledger]
    # @param unicode [Boolean] false: plain ASCII
    def initialize(ledger, unicode: true)
      @ledger = ledger
      @page = Page.new(unicode: unicode)
    end

    # @return [String]
    def to_s
      sections = [[@page.title(@ledger)], summary, table, holders, checks, reasons, footer].reject(&:empty?)
      @page.encoded(sections.map { |lines| "#{lines.join("\n")}\n" }.join("\n"))
    end

    private

    def summary
      return ["  The kernel says  nothing; the reasons are below"] unless @ledger.rss_bytes

      kernel = summary_line("The kernel says", @ledger.rss_bytes, "resident")
      return [kernel, "  Ruby says        nothing; where the kernel's is:"] unless live_bytes

      ruby_bytes = live_bytes + (@ledger.held_by_objects_bytes || 0)
      [kernel, summary_line("Ruby says", ruby_bytes, ruby_says),
       summary_line("The difference", @ledger.rss_bytes - ruby_bytes, "and this is where it is:")]
    end

    def ruby_says
      held = @ledger.held_by_objects_bytes
      held ? "#{mebibytes(live_bytes)} in live slots, #{mebibytes(held)} held through malloc" : "in live slots"
    end

    # Who in Ruby holds what malloc has given out, where both are known.
    def holders
      detail = @ledger.rows.find { |row| row.id == :malloc }&.detail || {}
      given_out, objects, nobody = detail.values_at(:in_use_bytes, :held_by_objects_bytes, :held_by_nobody_bytes)
      return [] unless given_out && objects

      [@page.wrapped("Of #{size(given_out)} that malloc has given out, Ruby objects account for #{size(objects)}, " \
                     "nobody in Ruby for #{size(nobody)}.")]
    end

    def summary_line(name, bytes, meaning) = "  #{name.ljust(16)}#{mebibytes(bytes).rjust(10)} MiB   #{meaning}"

    # nil where Ruby's rows could not be split.
    def live_bytes = @ledger.each_leaf.find { |row| row.id == :live_slots }&.bytes

    def table = @ledger.rss_bytes ? Table.new(@ledger, @page).lines : []

    def checks
      checked.reject { |row| row.check.verified? }.map do |row|
        check = row.check
        @page.wrapped("unverified: #{row.label}: #{check.source} says #{exact(check.expected_bytes)}, found " \
                      "#{exact(check.actual_bytes)}: #{signed(check.difference_bytes)} B")
      end
    end

    def checked(rows = @ledger.rows) = rows.flat_map { |row| [(row if row.check), *checked(row.children)] }.compact

    def reasons
      given = @ledger.reasons
      given = { malloc: @ledger.allocator.proof, **given } unless @ledger.allocator.proved?
      return [] if given.empty?

      lines = given.map { |id, why| @page.wrapped("#{id}: #{why}", indent: "    ") }
      ["  not known, or coarse:", *lines]
    end

    def footer
      cost = @ledger.cost
      read = "read in #{milliseconds(cost.wall_us)} (#{milliseconds(cost.gvl_us)} under the GVL)"
      [@page.joined([read, against_statm, agreement].compact, indent: "  ")]
    end

    # statm is read before and after the scan; a scan between the two is off by nothing.
    def against_statm
      bounds = [@ledger.statm_before_bytes, @ledger.statm_after_bytes].compact
      return if bounds.empty? || @ledger.rss_bytes.nil?

      difference = @ledger.rss_bytes - @ledger.rss_bytes.clamp(*bounds.minmax)
      "#{SCANS.fetch(@ledger.source)} against statm: #{signed(difference)} B"
    end

    def agreement
      all = checked
      "#{all.count { |row| row.check.verified? }} of #{counted(all.length, 'checks')} verified" unless all.empty?
    end
  end
end
