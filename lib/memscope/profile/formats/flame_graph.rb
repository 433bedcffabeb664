# frozen_string_literal: true

require "digest"
require "erb"
require "json"
require_relative "../../report/profile"

module Memscope
  class Profile < Reading
    module Formats
      # A self-contained page that draws a profile. Its Content-Security-Policy allows only its own scripts and styles,
      # by their hashes, and no requests; names from the program are inserted only as text.
      #
      # @api private
      class FlameGraph
        include ERB::Util
        include Report::Quantity

        read = ->(path) { File.read(File.expand_path("../../#{path}", __dir__), encoding: Encoding::UTF_8).freeze }
        LIBRARY = read.call("web/assets/d3-flamegraph.umd.min.js")
        SCRIPTS = [read.call("web/assets/d3.min.js"), LIBRARY, read.call("profile/assets/flame_graph.js")].freeze
        STYLE = (read.call("web/assets/base.css") + read.call("profile/assets/flame_graph.css")).freeze
        # The second one is inserted by d3-flame-graph.
        STYLES = [STYLE, LIBRARY[/\.textContent=`([^`]*)`/, 1]].freeze
        PAGE = ERB.new(read.call("profile/assets/page.html.erb"), trim_mode: "-")
        # The maximum number of lines in the table.
        LINES = 50
        # The same colours as in flame_graph.js.
        KINDS = { "#f6b3bd" => "application", "#f3cf8e" => "gems", "#f1e6a2" => "Ruby and its standard library",
                  "#b4cdf3" => "native functions", "#d9d7d0" => "stacks that could not be walked" }.freeze
        CHANGES = { "#f4705b" => "grew", "#6fa8f0" => "shrank", "#f4f2ec" => "both in equal parts" }.freeze
        # Characters that could end the script element, or a line of JavaScript.
        UNSAFE = ["<", ">", "&", "\u2028", "\u2029"].to_h { |text| [text, format('\u%04x', text.ord)] }.freeze
        # Shown while the pointer is on no frame.
        HINT = "Point at a frame for its line and its bytes; click it to zoom."
        private_constant :HINT, :LIBRARY, :SCRIPTS, :STYLE, :STYLES, :PAGE, :LINES, :KINDS, :CHANGES, :UNSAFE

        # @return [String] the page's Content-Security-Policy, for a header too
        def self.policy
          @policy ||= begin
            scripts, styles = [SCRIPTS, STYLES].map do |texts|
              texts.map { |text| "'sha256-#{Digest::SHA256.base64digest(text)}'" }.join(" ")
            end
            "default-src 'none'; script-src #{scripts}; style-src #{styles}; img-src data:; base-uri 'none'; " \
            "form-action 'none'"
          end
        end

        # @param profile [Profile, Difference]
        # @param back [String, nil] the address of the page that the link "Back" leads to
        def initialize(profile, back: nil)
          @profile = profile
          @back = back
          @difference = profile.difference?
          @text = Report::ProfilePage.new(profile)
        end

        # @return [String] HTML
        def to_s = PAGE.result(binding)

        private

        def title = "#{@difference ? 'Growth of malloc' : 'Malloc'} by Ruby line, process #{@profile.pid}"

        def entries = @entries ||= @profile.by(:line).reject { |entry| entry.live_bytes.zero? }

        def largest = @difference ? entries.max_by(LINES) { |entry| entry.live_bytes.abs } : entries.first(LINES)

        def bytes(number) = @difference ? signed_mebibytes(number) : mebibytes(number)

        def foldable? = @profile.frames.any? { |frame| Libraries.framework?(frame.library) }

        def share(entry) = entry.share ? format("%.1f %%", 100 * entry.share) : ""

        def data
          frames = [*@profile.frames.map { |frame| frame(frame) }, ["[no frames]", KINDS.size - 1, nil]]
          JSON.generate({ difference: @difference, frames: frames, stacks: stacks }).gsub(/[<>&\u2028\u2029]/, UNSAFE)
        end

        # Summed over stacks with the same frames: frames (leaf first), live bytes, samples and error.
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

        # Frames of frameworks, which can be folded, have an additional 1.
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
    end
  end
end
