# frozen_string_literal: true

require "digest"
require "erb"
require "json"
require_relative "report/profile"

module Memscope
  module Report
    # A self-contained page that draws a profile. Its Content-Security-Policy allows only its own scripts and styles,
    # by their hashes, and no requests. Names from the program are inserted only as text.
    # @api private
    class FlameGraph
      include ERB::Util

      read = ->(path) { File.read(File.expand_path("../#{path}", __dir__), encoding: Encoding::UTF_8).freeze }
      SCRIPTS = %w[web/assets/d3-flame-graph.min.js show/assets/flame_graph.js].map(&read).freeze
      STYLE = %w[web/assets/d3-flame-graph.min.css web/assets/base.css show/assets/flame_graph.css]
              .map(&read).join.freeze
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

      # The page's Content-Security-Policy, which a header repeats.
      def self.policy
        @policy ||= begin
          scripts, styles = [SCRIPTS, [STYLE]].map do |texts|
            texts.map { |text| "'sha256-#{Digest::SHA256.base64digest(text)}'" }.join(" ")
          end
          "default-src 'none'; script-src #{scripts}; style-src #{styles}; img-src " \
          "data:; base-uri 'none'; form-action 'none'"
        end
      end

      # `back` is the address of the page that the link "Back" leads to.
      def initialize(profile, back: nil)
        @profile = profile
        @back = back
        @page = ProfilePage.new(profile, limit: LINES, width: Page::MAX_WIDTH)
      end

      def to_s = PAGE.result(binding)

      private

      def title
        nouns = @profile.objects? ? "Objects" : "Malloc"
        nouns = "Growth of #{nouns.downcase}" if @profile.difference?
        "#{nouns} by Ruby line, process #{@profile.pid}"
      end

      # The meaning of each colour.
      def key = @profile.difference? ? CHANGES : KINDS

      # The lines of the table, as in a report; nil if nothing is live.
      def table = @table ||= @page.parts.grep(Table).first

      def foldable? = @profile.frames.any? { |frame| Libraries.framework?(frame.library) }

      # For the script. The squared errors of stacks sum to the squared error of a frame, except of objects: their
      # samples are not independent of each other (Shares), so only the table shows errors.
      def data
        files = @profile.frames.filter_map { |frame| file(frame) }.uniq
        index = files.each_with_index.to_h
        frames = [*@profile.frames.map { |frame| frame(frame, index) }, ["[no frames]", KINDS.size - 1, nil, nil]]
        body = { difference: @profile.difference?, errors: !@profile.objects?, files: files, frames: frames,
                 stacks: stacks }
        JSON.generate(body).gsub(/[<>&\u2028\u2029]/, UNSAFE)
      end

      # One Array for all stacks with the same frames: frames (leaf first), live bytes, samples, error.
      def stacks
        sums = @profile.stacks.group_by(&:frames).map do |frames, stacks|
          squared = stacks.sum { |stack| stack.error_bytes**2 }
          path = frames.empty? ? [@profile.frames.size] : frames
          [path, stacks.sum(&:live_bytes), stacks.sum(&:samples), Integer.sqrt(squared)]
        end
        sums.reject { |_path, bytes,| bytes.zero? }
      end

      # A fifth element, 1, marks frames of frameworks, which the page can fold.
      def frame(one, index)
        [one.name, colour(one), index[file(one)], one.lineno, *(1 if Libraries.framework?(one.library))]
      end

      def file(one) = one.path || one.library

      # An index into KINDS.
      def colour(frame)
        return frame.kind == :native ? 3 : 4 unless frame.kind == :ruby

        { Libraries::APPLICATION => 0, Libraries::STANDARD => 2, nil => 2 }.fetch(frame.library, 1)
      end
    end
  end
end
