# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # What a profile and a difference of two have in common: frames, stacks, and all that is made of them.
    module Sampled
      # What a class of them can do.
      #
      # @api private
      module Parsing
        # @param json [String] as `to_json` gives it
        # @return [Profile, Difference]
        # @raise [ArgumentError] where it is no JSON, truncated, or of something else
        def from_json(json)
          unless json.is_a?(String)
            raise ArgumentError, "#{name}.from_json: json: given #{json.inspect[0, 60]}, allowed: a String"
          end

          require "json"
          from_h(JSON.parse(json))
        rescue JSON::ParserError => e
          raise ArgumentError, "#{name}.from_json: json: given #{json.bytesize} bytes that are no JSON, or only the " \
                               "beginning of it (#{e.message.lines.first.to_s.strip[0, 120]}), allowed: what to_json " \
                               "gave"
        end
      end

      # What `by` groups by.
      GROUPINGS = %i[line method native library stack generation tag thread].freeze

      # @api private
      def self.included(base) = base.extend(Parsing)

      # Groups of stacks, the largest first. Their numbers sum to the whole's.
      #
      # - :line, the line nearest to the allocation that is in a Ruby file, other than those of Memscope.tag and of the
      #   middleware that tags; without one, the state that says why, or the native function
      # - :method, the method of that line
      # - :native, the native function nearest to the allocation that is neither C's, Ruby's nor the allocator's
      # - :library, the gem, "Ruby standard library", "application" or the shared object that this is in
      # - :stack, :generation, :tag, :thread
      #
      # @param grouping [Symbol] of GROUPINGS
      # @return [Array<Entry>]
      # @raise [ArgumentError] for any other
      def by(grouping)
        unless GROUPINGS.include?(grouping)
          raise ArgumentError, "#{self.class}#by: grouping: given #{grouping.inspect}, allowed: " \
                               "#{GROUPINGS.map(&:inspect).join(', ')}"
        end

        Grouping.new(self).entries(grouping)
      end

      # @return [Integer] the sum of all stacks' live bytes
      def total_live_bytes = live_bytes

      # @return [Integer] one standard error of that
      def total_error_bytes = error_bytes

      # @return [Boolean] whether it is known what was allocated since profiling began, and freed again
      def allocations? = !stacks.empty? && stacks.all?(&:allocated_bytes)

      # @api private
      # @return [Boolean] whether its numbers say by how much they grew
      def difference? = is_a?(Difference)

      # The whole for people. 80 columns; plain ASCII where the locale is not UTF-8.
      #
      # @param by [Symbol] of GROUPINGS
      # @param limit [Integer] how many entries
      # @return [String]
      # @raise [ArgumentError] for another grouping, or a limit that is no positive Integer
      def to_s(by: :line, limit: 20)
        unless limit.is_a?(Integer) && limit.positive?
          raise ArgumentError, "#{self.class}#to_s: limit: given #{limit.inspect}, allowed: an Integer of 1 or more"
        end

        require_relative "../report"
        require_relative "../report/profile_page"
        Report::ProfilePage.new(self, by: by, limit: limit).to_s
      end

      # A line for each stack, the outermost frame first, and live bytes: for flamegraph.pl, inferno and others. In a
      # Difference by how much they grew.
      #
      # @return [String]
      def to_collapsed = Collapsed.new(self).to_s

      # For https://www.speedscope.app. In a Difference what grew and what shrank are profiles of their own.
      #
      # @return [String] JSON
      def to_speedscope = Speedscope.new(self).to_s

      # For `go tool pprof`, Pyroscope, Parca: gzipped profile.proto. Requires the gem google-protobuf.
      #
      # @return [String] binary
      # @raise [LoadError] where the gem is not there, saying what to add to the Gemfile
      def to_pprof = Pprof.new([[self, {}]]).to_s

      # For https://profiler.firefox.com: its processed format.
      #
      # @return [String] JSON
      def to_firefox = Firefox.new(self).to_s

      # A page with a flame graph that needs nothing else: no network, no other file. Its width says how much lives; in
      # a Difference by how much it changed, red for what grew and blue for what shrank.
      #
      # @return [String] HTML
      def to_html = FlameGraph.new(self).to_s
    end
  end
end
