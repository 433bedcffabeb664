# frozen_string_literal: true

require "json"
require_relative "merged"

module Memscope
  class Profile < Reading
    # The Firefox profiler's processed format, with allocations that say how many bytes live: as valgrind's DHAT is
    # imported there, a thread for each number.
    #
    # @api private
    class Firefox
      # Of the processed format, and of the raw one beside it; newer viewers know the older.
      VERSION = 70
      RAW_VERSION = 36
      CATEGORIES = { ruby: "Ruby", native: "Native", state: "Other" }.freeze
      COLOURS = { ruby: "red", native: "blue", state: "grey" }.freeze
      private_constant :VERSION, :RAW_VERSION, :CATEGORIES, :COLOURS

      # @param profile [Profile, Difference]
      def initialize(profile)
        @profile = profile
        @strings = {}
        @functions = {}
        @sources = {}
        @stacks = {}
      end

      # @return [String] JSON
      def to_s
        threads = numbers.each_with_index.map { |(name, number), index| thread(name, index, number) }
        JSON.generate(meta: meta, libs: [], pages: [], shared: shared, threads: threads)
      end

      private

      def numbers
        { (@profile.difference? ? "growth of live bytes" : "live bytes") => :live_bytes,
          **(@profile.allocations? ? { "allocated bytes since start" => :allocated_bytes } : {}) }
      end

      def meta
        { interval: 1, startTime: @profile.at.to_f * 1000, abi: "", misc: "", oscpu: "", platform: "",
          processType: 0, extensions: table(%i[id name baseURL], []), product: "memscope #{@profile.memscope}",
          importedFrom: "memscope", stackwalk: 1, toolkit: "", version: RAW_VERSION,
          preprocessedProfileVersion: VERSION, appBuildID: "", sourceURL: "", physicalCPUs: 0, logicalCPUs: 0,
          CPUName: "", symbolicated: true, markerSchema: [],
          categories: CATEGORIES.map { |kind, name| { name: name, color: COLOURS[kind], subcategories: ["Other"] } } }
      end

      # By columns, as each table there is.
      def table(columns, rows)
        { **columns.zip(rows.empty? ? columns.map { [] } : rows.transpose).to_h, length: rows.size }
      end

      def thread(name, index, number)
        weights = Merged.by_frames(@profile, &number)
        allocations = { time: weights.map { 0 }, stack: weights.keys.map { |frames| stack(frames) },
                        weight: weights.values, weightType: "bytes", length: weights.size }
        { processType: "default", processStartupTime: 0, processShutdownTime: nil, registerTime: 0,
          unregisterTime: nil, pausedRanges: [], name: name, isMainThread: index.zero?, pid: @profile.pid.to_s,
          tid: index, nativeAllocations: allocations,
          samples: { weightType: "samples", weight: nil, eventDelay: [], stack: [], time: [], length: 0 },
          markers: table(%i[data name startTime endTime phase category], []) }
      end

      # @return [Integer, nil] of the innermost frame; outer ones come first
      def stack(frames)
        frames.reverse.inject(nil) do |outer, frame|
          @stacks[[outer, frame]] ||= @stacks.size
        end
      end

      # Asked for last: by then all stacks are known.
      def shared
        frames = frame_table
        { stackTable: stack_table, frameTable: frames, funcTable: function_table,
          resourceTable: table(%i[name host type], []),
          nativeSymbols: table(%i[libIndex address name functionSize], []),
          sources: table(%i[id filename startLine startColumn sourceMapURL content],
                         @sources.keys.map { |path| [nil, string(path), 1, 1, nil, nil] }),
          sourceLocationTable: table(%i[source line column], []), stringArray: @strings.keys }
      end

      # How far back the outer stack is, 0 for none.
      def stack_table
        table(%i[frame prefixOffset],
              @stacks.map { |(outer, frame), index| [frame, outer ? index - outer : 0] })
      end

      def frame_table
        rows = @profile.frames.map do |frame|
          [-1, 0, CATEGORIES.keys.index(frame.kind), 0, function(frame), -1, nil, nil, frame.lineno, nil, nil]
        end
        table(%i[address inlineDepth category subcategory func lib nativeSymbol innerWindowID line column
                 originalLocation], rows)
      end

      def function_table
        rows = @functions.keys.map do |name, path|
          [false, false, string(name), -1, path && source(path), nil, nil, nil]
        end
        table(%i[isJS relevantForJS name resource source lineNumber columnNumber originalLocation], rows)
      end

      def function(frame) = @functions[[frame.name, frame.path || frame.library]] ||= @functions.size

      def source(path) = @sources[path] ||= @sources.size

      def string(text) = @strings[text] ||= @strings.size
    end
  end
end
