# frozen_string_literal: true

require "json"

module Memscope
  class Profile < Reading
    module Formats
      # The Firefox profiler's processed format, with live bytes shown as allocations, and one thread per quantity
      # (live bytes, allocated bytes), as in its import of Valgrind's DHAT output.
      #
      # @api private
      class Firefox
        # Versions of the processed format, and of the raw format that it derives from; newer viewers upgrade old ones.
        VERSION = 70
        RAW_VERSION = 36
        CATEGORIES = { ruby: %w[Ruby red], native: %w[Native blue], state: %w[Other grey] }.freeze
        private_constant :VERSION, :RAW_VERSION, :CATEGORIES

        # @param profile [Profile, Difference]
        def initialize(profile)
          @profile = profile
          @strings, @functions, @sources, @stacks = Array.new(4) { Hash.new { |ids, key| ids[key] = ids.size } }
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
            categories: CATEGORIES.values.map { |name, color| { name: name, color: color, subcategories: ["Other"] } } }
        end

        # Stored by columns, as all tables of the format are.
        def table(columns, rows)
          { **columns.zip(rows.empty? ? columns.map { [] } : rows.transpose).to_h, length: rows.size }
        end

        def thread(name, index, number)
          weights = @profile.by_frames(&number)
          allocations = { time: weights.map { 0 }, stack: weights.keys.map { |frames| stack(frames) },
                          weight: weights.values, weightType: "bytes", length: weights.size }
          { processType: "default", processStartupTime: 0, processShutdownTime: nil, registerTime: 0,
            unregisterTime: nil, pausedRanges: [], name: name, isMainThread: index.zero?, pid: @profile.pid.to_s,
            tid: index, nativeAllocations: allocations,
            samples: { weightType: "samples", weight: nil, eventDelay: [], stack: [], time: [], length: 0 },
            markers: table(%i[data name startTime endTime phase category], []) }
        end

        # @return [Integer, nil] index of the innermost frame's row in the stack table; outer frames' rows come first
        def stack(frames) = frames.reverse.inject(nil) { |outer, frame| @stacks[[outer, frame]] }

        # Called last: all stacks are known by then. Building one table adds rows to the tables that are built after it.
        def shared
          frames = @profile.frames.map do |frame|
            function = @functions[[frame.name, frame.path || frame.library]]
            [-1, 0, CATEGORIES.keys.index(frame.kind), 0, function, -1, nil, nil, frame.lineno, nil, nil]
          end
          functions = @functions.keys.map do |name, path|
            [false, false, @strings[name], -1, path && @sources[path], nil, nil, nil]
          end
          sources = @sources.keys.map { |path| [nil, @strings[path], 1, 1, nil, nil] }
          tables(frames, functions, sources)
        end

        def tables(frames, functions, sources)
          { stackTable: table(%i[frame prefixOffset], stacks),
            frameTable: table(%i[address inlineDepth category subcategory func lib nativeSymbol innerWindowID line
                                 column originalLocation], frames),
            funcTable: table(%i[isJS relevantForJS name resource source lineNumber columnNumber originalLocation],
                             functions),
            resourceTable: table(%i[name host type], []),
            nativeSymbols: table(%i[libIndex address name functionSize], []),
            sources: table(%i[id filename startLine startColumn sourceMapURL content], sources),
            sourceLocationTable: table(%i[source line column], []), stringArray: @strings.keys }
        end

        # A row for each stack: its frame, and the distance back to the row of the outer stack, 0 if there is none.
        def stacks = @stacks.map { |(outer, frame), index| [frame, outer ? index - outer : 0] }
      end
    end
  end
end
