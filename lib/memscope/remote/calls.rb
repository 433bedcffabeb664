# frozen_string_literal: true

require "json"
require_relative "../facade"
require_relative "../loader"

module Memscope
  # The calls that one process can make in another over its socket: a closed table with their options and results. A
  # request is one line of JSON, {"call": "ledger", "options": {"deep": true}}, and so is the answer: {"ok": …} with the
  # reading's to_h, or {"error": "…", "kind": "ArgumentError"}.
  #
  # Neither side trusts the other's text: nothing in it names a class, a method or a file.
  #
  # @api private
  module Calls
    # The process allows no actions.
    class Refused < StandardError; end

    # One call: the class that it returns (nil for plain JSON values), and the names of its options.
    Call = Struct.new(:type, :options) do
      # @param value [Object] parsed JSON
      # @return [Object] the reading
      def load(value) = type ? Memscope.const_get(type.name).from_h(value) : value
    end

    CALLS = {
      rss: Call.new(nil, []),
      allocator: Call.new(:Allocator, []),
      snapshot: Call.new(:Snapshot, %w[malloc]),
      ledger: Call.new(:Ledger, %w[deep shared objects strict gc garbage]),
      arenas: Call.new(:Arenas, []),
      size_classes: Call.new(:SizeClasses, %w[arena]),
      fragmentation: Call.new(:Fragmentation, []),
      mappings: Call.new(:Mappings, []),
      ruby_heap: Call.new(:RubyHeap, %w[collect]),
      census: Call.new(:Census, %w[gc]),
      heap_graph: Call.new(:HeapGraph, %w[top paths_to strings in deadline]),
      take_census: Call.new(nil, %w[gc]),
      kept_censuses: Call.new(nil, []),
      take_heap_graph: Call.new(nil, %w[paths_to strings]),
      kept_heap_graph: Call.new(nil, []),
      process_memory: Call.new(:ProcessMemory, []),
      cgroup: Call.new(:Cgroup, []),
      lint: Call.new(:Lint, []),
      doctor: Call.new(:Diagnosis, %w[gc]),
      diagnosis_with_forecast: Call.new(nil, []),
      workers: Call.new(:Workers, []),
      purge: Call.new(:"Purge::Result", %w[levers arena dry_run gc]),
      dump: Call.new(:Dump, %w[path format gc deadline]),
      malloc_profile_state: Call.new(nil, []),
      malloc_profile_snapshot: Call.new(:Profile, []),
      malloc_profile_start: Call.new(nil, %w[seconds rate backend shared]),
      malloc_profile_stop: Call.new(:Profile, %w[token gc]),
      malloc_profile_stop_shared: Call.new(nil, [])
    }.freeze

    # The longest request, in bytes.
    LONGEST_REQUEST = 16 * 1024

    # Calls that change the process.
    ACTIONS = %i[purge dump malloc_profile_start malloc_profile_stop malloc_profile_stop_shared].freeze

    # Options that collect garbage. That stops all threads, so a call with one of them counts as an action.
    COLLECTING = %w[gc collect].freeze

    # Calls that do not map to a method of Memscope with the same name and options.
    OWN = [*ACTIONS, :census, :heap_graph, :take_census, :kept_censuses, :take_heap_graph, :kept_heap_graph,
           :diagnosis_with_forecast, :malloc_profile_state, :malloc_profile_snapshot].freeze

    # Nesting levels of a request's JSON: the request, its options, the list of levers.
    DEPTH = 3

    # Control characters, Unicode line and paragraph separators, and characters that set the direction of text.
    CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/
    private_constant :ACTIONS, :OWN, :DEPTH, :CONTROL

    class << self
      # Answers one request. No request makes it raise.
      #
      # @param line [String] the request
      # @return [String] the answer, one line
      def answer(line)
        name, options = parse(line)
        result = OWN.include?(name) ? send(name, **options) : Memscope.public_send(name, **options)
        "#{JSON.generate(ok: result.respond_to?(:to_h) ? result.to_h : result)}\n"
      rescue StandardError, NoMemoryError, ScriptError, SystemStackError => e
        failure(e.class.name, e.message)
      end

      # @return [String] the answer for an error, one line
      def failure(kind, message) = "#{JSON.generate(error: Field.text(message), kind: kind)}\n"

      # Simultaneous requests for the same reading can share an answer; actions cannot.
      #
      # @param line [String] the request
      def shareable?(line) = ACTIONS.none? { |name| line.include?(name.name) }

      # @param value [Object] parsed JSON
      # @return [Object] the same value, with "?" for each character of CONTROL
      def printable(value)
        case value
        when String then value.match?(CONTROL) ? value.gsub(CONTROL, "?") : value
        when Array then value.map { |item| printable(item) }
        when Hash then value.to_h { |key, item| [printable(key), printable(item)] }
        else value
        end
      end

      private

      def parse(line)
        request = JSON.parse(Field.text(line), max_nesting: DEPTH)
        Loader.refuse("a request", request, "an object") unless request.is_a?(Hash)
        Loader.refuse("a request", request.keys, "call, options") unless (request.keys - %w[call options]).empty?

        name = choose("call", request["call"], CALLS.keys)
        [name, options(name, request.fetch("options", {}))]
      rescue JSON::ParserError
        Loader.refuse("a request", line, "one line of JSON, an object")
      end

      def options(name, given)
        allowed = CALLS.fetch(name).options
        Loader.refuse("#{name}: options", given, "an object") unless given.is_a?(Hash)
        unknown = given.keys - allowed
        check_actions if given.values_at(*COLLECTING).include?(true)
        return given.transform_keys(&:to_sym) if unknown.empty?

        Loader.refuse("#{name}: an option", unknown.first, allowed.empty? ? "none" : allowed.join(", "))
      end

      # A dry run is not an action.
      def purge(levers: [], dry_run: false, **options)
        check_actions unless dry_run == true
        Loader.refuse("purge: levers", levers, "a list of #{Purge::LEVERS.join(', ')}") unless levers.is_a?(Array)
        levers = levers.map { |given| choose("purge: a lever", given, Purge::LEVERS) }
        Memscope.purge(*levers, dry_run: dry_run, **options)
      end

      # In the process, it stops all threads: an action.
      def heap_graph(paths_to: nil, in: "fork", **options)
        place = choose("heap_graph: in", binding.local_variable_get(:in), HeapGraph::PLACES)
        check_actions if place == :process
        graph = HeapGraph.take(paths_to: class_name(paths_to), in: place, **options)
        graph.known? ? HeapGraph::Kept.keep(graph) : graph
      end

      def class_name(given)
        return given if given.nil? || given.is_a?(String)

        Loader.refuse("heap_graph: paths_to", given, "a class's name")
      end

      # For other people: in a forked child, if it would stop this process for long.
      def census(gc: false) = Census::Kept.keep(Census.bounded(gc: gc))

      def take_census(gc: false) = Census::Kept.take(gc: gc)

      def kept_censuses = { censuses: Census::Kept.bodies }

      def take_heap_graph(paths_to: nil, strings: false)
        HeapGraph::Kept.take(paths_to: class_name(paths_to), strings: strings)
      end

      def kept_heap_graph = { heap_graph: HeapGraph::Kept.body }

      # What the pages show about another process: the forecast is based on the diagnosis's own readings.
      def diagnosis_with_forecast
        diagnosis = Memscope.doctor
        { diagnosis: diagnosis.to_h, forecast: Purge.forecast(diagnosis.evidence).to_h }
      end

      # Into this process's own view of the file system, which the client cannot know.
      def dump(path: nil, format: "perfetto", **options)
        check_actions
        absolute = path.is_a?(String) && path.start_with?("/") && !path.include?("\0")
        Loader.refuse("dump: path", path, "an absolute path") unless absolute
        Memscope.dump(path, format: choose("dump: format", format, Dump::FORMATS.keys), **options)
      end

      def malloc_profile_state = MallocProfile::Lease.state

      def malloc_profile_snapshot = MallocProfile.snapshot

      # Returns at once: the client waits in its own process.
      def malloc_profile_start(seconds: nil, backend: "auto", **options)
        check_actions
        backend = choose("backend", backend, MallocProfile::BACKENDS)
        Loader.refuse("shared", options[:shared], "true, false") unless [nil, true, false].include?(options[:shared])
        MallocProfile::Lease.start(seconds: seconds, backend: backend, **options)
      end

      def malloc_profile_stop(token: nil, gc: false)
        check_actions
        refuse("gc", gc, "true, false") unless [true, false].include?(gc)
        MallocProfile::Lease.stop(token, gc: gc)
      end

      # Keeps the samples, for malloc_profile_snapshot.
      def malloc_profile_stop_shared
        check_actions
        MallocProfile::Lease.stop_shared
        malloc_profile_state
      end

      def check_actions
        return if Configuration.so_far.actions

        raise Refused, "this process allows no actions: its setting `actions` is false"
      end

      def choose(what, given, allowed)
        allowed.find { |name| name.name == given } || Loader.refuse(what, given, allowed.join(", "))
      end
    end
  end
end
