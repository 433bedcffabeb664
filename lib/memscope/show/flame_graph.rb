# frozen_string_literal: true

require "digest"
require "erb"
require "json"
require_relative "report/profile"

module Memscope
  module Report
    # A self-contained page that draws one profile, or several profiles, one at a time. Its Content-Security-Policy
    # allows only its own scripts and styles, by their hashes, and no requests; names from the program are inserted
    # only as text.
    #
    # @api private
    class FlameGraph
      include ERB::Util
      include Quantity

      read = ->(path) { File.read(File.expand_path("../#{path}", __dir__), encoding: Encoding::UTF_8).freeze }
      LIBRARY = read.call("web/assets/d3-flamegraph.umd.min.js")
      SCRIPTS = [read.call("web/assets/d3.min.js"), LIBRARY, read.call("show/assets/flame_graph.js")].freeze
      STYLE = (read.call("web/assets/base.css") + read.call("show/assets/flame_graph.css")).freeze
      # The second style is inserted by d3-flame-graph.
      STYLES = [STYLE, LIBRARY[/\.textContent=`([^`]*)`/, 1]].freeze
      PAGE = ERB.new(read.call("show/assets/page.html.erb"), trim_mode: "-")
      # The maximum number of lines in the table.
      LINES = 50
      # The same colours as in flame_graph.js.
      KINDS = { "#f6b3bd" => "application", "#f3cf8e" => "gems", "#f1e6a2" => "Ruby and its standard library",
                "#b4cdf3" => "native functions", "#d9d7d0" => "stacks that could not be walked" }.freeze
      CHANGES = { "#f4705b" => "grew", "#6fa8f0" => "shrank", "#f4f2ec" => "both in equal parts" }.freeze
      # Characters that could end the script element, or a line of JavaScript.
      UNSAFE = ["<", ">", "&", "\u2028", "\u2029"].to_h { |text| [text, format('\u%04x', text.ord)] }.freeze
      Libraries = Profile.const_get(:Libraries)
      private_constant :Libraries, :LIBRARY, :SCRIPTS, :STYLE, :STYLES, :PAGE, :LINES, :KINDS, :CHANGES, :UNSAFE

      # @return [String] the page's Content-Security-Policy, for a header too
      def self.policy
        @policy ||= begin
          scripts, styles = [SCRIPTS, STYLES].map do |texts|
            texts.map { |text| "'sha256-#{Digest::SHA256.base64digest(text)}'" }.join(" ")
          end
          "default-src 'none'; script-src #{scripts}; style-src #{styles}; img-src " \
          "data:; base-uri 'none'; form-action 'none'"
        end
      end

      # What the page shows of one profile.
      class Part
        include Quantity

        # @param profile [Profile]
        def initialize(profile)
          @profile = profile
          @text = Report::ProfilePage.new(profile)
        end

        # @return [String] "Malloc", "Objects"
        def noun = @profile.objects? ? "Objects" : "Malloc"

        # @return [String]
        def summary = @text.summary

        # @return [String]
        def provenance = @text.provenance.join(" ")

        # @return [Boolean]
        def difference? = @profile.difference?

        # @return [Array<Entry>] lines with live memory
        def entries = @entries ||= @profile.by(:line).reject { |entry| entry.live_bytes.zero? }

        # @return [Array<Entry>] the lines of the table
        def largest
          difference? ? entries.max_by(LINES) { |entry| entry.live_bytes.abs } : entries.first(LINES)
        end

        # @return [Hash{String => String}] what each colour means
        def key = difference? ? CHANGES : KINDS

        # @return [String] the heading of the table
        def heading = difference? ? "Lines that changed most" : "Lines that hold most"

        # @return [Array<String>] headings of the other columns
        def columns = ["MiB", "±", "samples", difference? ? "growth" : "share"]

        # @return [Array<String>] the entry's cells in the columns of `columns`
        def cells(entry) = [bytes(entry), error(entry), count(entry.samples), share(entry)]

        # @return [String] which native function allocated; "" if that is unknown
        def by(entry) = entry.native ? "by #{entry.native}" : ""

        # @return [String] MiB
        def bytes(entry)
          number = @profile.estimate(entry, :live_bytes) or return ""
          difference? ? signed_mebibytes(number) : mebibytes(number)
        end

        # @return [String] MiB
        def error(entry) = @profile.estimate(entry, :error_bytes)&.then { |number| mebibytes(number) }.to_s

        # @return [String]
        def share(entry) = @profile.estimate(entry, :share)&.then { |share| format("%.1f %%", 100 * share) }.to_s

        # @return [Boolean]
        def foldable? = @profile.frames.any? { |frame| Libraries.framework?(frame.library) }

        # @return [Hash{Symbol => Object}] for the script
        def data
          frames = [*@profile.frames.map { |frame| frame(frame) }, ["[no frames]", KINDS.size - 1, nil]]
          { difference: difference?, errors: errors?, frames: frames, stacks: stacks }
        end

        private

        # Whether the squared errors of stacks sum to the squared error of a frame. Samples of objects are not
        # independent of each other (Shares), so no frame's error is shown for objects; the table shows each line's
        # error.
        def errors? = !@profile.objects?

        # One Array for all stacks with the same frames: frames (leaf first), live bytes, samples, error.
        def stacks
          sums = Hash.new { |hash, frames| hash[frames] = [0, 0, 0] }
          @profile.stacks.each do |stack|
            sum = sums[stack.frames]
            sum[0] += stack.live_bytes
            sum[1] += stack.samples
            sum[2] += stack.error_bytes**2
          end
          sums.reject { |_frames, (bytes)| bytes.zero? }
              .map { |frames, (bytes, samples, squared)| [path(frames), bytes, samples, Integer.sqrt(squared)] }
        end

        def path(frames) = frames.empty? ? [@profile.frames.size] : frames

        # A fourth element, 1, marks frames of frameworks, which the page can fold.
        def frame(frame)
          [frame.name, colour(frame), frame.place || frame.library, *(1 if Libraries.framework?(frame.library))]
        end

        # An index into KINDS.
        def colour(frame)
          return frame.kind == :native ? 3 : 4 unless frame.kind == :ruby

          case frame.library
          when Libraries::APPLICATION then 0
          when Libraries::STANDARD, nil then 2
          else 1
          end
        end
      end
      private_constant :Part

      # @param profiles [Array<Profile>] the first one is drawn first
      # @param back [String, nil] the address of the page that the link "Back" leads to
      def initialize(profiles, back: nil)
        @parts = profiles.map { |profile| Part.new(profile) }
        @drawn = @parts.select { |part| part.entries.any? }
        @pid, @version = profiles.first&.then { |profile| [profile.pid, profile.memscope] }
        @back = back
      end

      # @return [String] HTML
      def to_s = PAGE.result(binding)

      private

      def title
        nouns = @parts.map(&:noun).join(" and ").capitalize
        nouns = "Growth of #{nouns.downcase}" if @parts.first.difference?
        "#{nouns} by Ruby line, process #{@pid}"
      end

      def data = JSON.generate(@drawn.map(&:data)).gsub(/[<>&\u2028\u2029]/, UNSAFE)
    end
  end
end
