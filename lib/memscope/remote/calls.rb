# frozen_string_literal: true

require "json"
require_relative "../heap/last_readings"

module Memscope
  # The calls that one process can make in another over the other's socket: a closed table with their options and
  # results. A request is one line of JSON, {"call": "ledger", "options": {"deep": true}}, and so is the answer:
  # {"ok": …} with the reading's to_h, or {"error": "…", "kind": "Memscope::Invalid", …}.
  #
  # Neither side trusts the other's text: no class and no method is looked up by a name in it unless the table has that
  # name, and only the action `dump` takes the path of a file from it.
  # @api private
  module Calls
    # The process does not allow the action.
    class Refused < StandardError; end

    WORDS = Words.beside(__FILE__)

    # One call: the class that it returns (nil for plain JSON values), whether it returns a list of them, the names of
    # its options, the class and the methods that lead from it to the answer, and whether it is an action whatever its
    # options are.
    Call = Struct.new(:type, :list, :options, :reader, :action) do
      # Refuses options that the call does not have.
      def check(name, given)
        unknown = given.keys.reject { |key| options.include?(key.to_s) }
        allowed = options.empty? ? "none" : options.join(", ")
        Field.refuse("an option", unknown.first, allowed, call: name) if unknown.any?
      end

      # Makes the reading from parsed JSON of another process.
      def load(value)
        return Field.plain(value) unless type

        record = Memscope.const_get(type.name)
        return record.from_h(value) unless list

        Field.refuse("a list of readings", value, "an Array") unless value.is_a?(Array)
        value.map { |item| record.from_h(item) }
      end
    end

    # A diagnosis, and a forecast of the bytes that the levers would return, both from the same ledger.
    Diagnosed = Struct.new(:diagnosis, :forecast) do
      def to_json(*state) = JSON.generate(to_h, *state)

      def self.read
        diagnosis = Loading.unit(:Doctor).read
        new(diagnosis, Purge.forecast(diagnosis.evidence))
      end

      def self.from_h(answer)
        Field.refuse("a diagnosis with its forecast", answer, "an object") unless answer.is_a?(Hash)

        new(CALLS[:doctor].load(answer["diagnosis"]), CALLS[:purge].load(answer["forecast"]))
      end
    end

    # The profilers, by the beginning of their calls' names.
    PROFILERS = { malloc_profile: :MallocProfile, object_profile: :ObjectProfile }.freeze

    # A line of calls.txt: the table of the calls.
    LINE = /^(\w+)(!?) (\S+)((?: \w+)*)(?: = (\S+))?$/
    CALLS = File.read("#{__dir__}/calls.txt").scan(LINE).to_h do |name, action, record, options, reader|
      type = record[/[\w:]+/]&.to_sym
      path = reader ? reader.split(".").map(&:to_sym) : [type, :read]
      [name.to_sym, Call.new(type, record.start_with?("["), options.split.freeze, path.freeze, action == "!").freeze]
    end.freeze

    # Maximum bytes of a request.
    MAX_REQUEST_BYTES = 16 * 1024

    # Options that collect garbage. That stops all threads, so a call with one of them counts as an action.
    COLLECTING = %w[gc collect].freeze

    class << self
      # Answers one request, a line, with a line. No request makes it raise.
      def answer(line)
        name, options = parse(line)
        JSON.generate(ok: run(name, **options)) << "\n"
      rescue StandardError, NoMemoryError, ScriptError, SystemStackError => e
        failure(e)
      end

      # Runs a call in this process: the private method of its name here. Without one, the call's reader. Raises Refused
      # for an action, if this process allows none.
      def run(name, **options)
        call = CALLS.fetch(name)
        check_actions if call.action
        return send(name, **options) if singleton_class.private_method_defined?(name, false)

        Loading.reader(*call.reader).call(**options)
      end

      # One line, with the parts of an Invalid.
      def failure(error)
        parts = error.is_a?(Invalid) ? Field.plain(error.to_h) : {}
        "#{JSON.generate(error: Field.text(error.message), kind: error.class.name, **parts)}\n"
      end

      private

      # A request nests three levels deep: itself, its options, the list of levers.
      def parse(line)
        most = MAX_REQUEST_BYTES
        Field.refuse("a request", line, WORDS.fill(:one_line, bytes: most)) if line.bytesize > most
        request = JSON.parse(Field.utf8(line), max_nesting: 3)
        Field.refuse("a request", request, "an object") unless request.is_a?(Hash)
        Field.refuse("a request", request.keys, "call, options") unless (request.keys - %w[call options]).empty?

        name = choose(:call, request["call"], CALLS.keys)
        [name, options(name, request.fetch("options", {}))]
      rescue JSON::ParserError
        Field.refuse("a request", line, WORDS[:one_object])
      end

      def options(name, given)
        Field.refuse(:options, given, "an object", call: name) unless given.is_a?(Hash)
        check_actions if given.values_at(*COLLECTING).include?(true)
        CALLS.fetch(name).check(name, given)
        given.transform_keys(&:to_sym)
      end

      # A dry run is not an action.
      def purge(levers: [], dry_run: false, **options)
        check_actions unless dry_run == true
        allowed = WORDS.fill(:levers, names: Purge::LEVERS.join(", "))
        Field.refuse(:levers, levers, allowed, call: :purge) unless levers.is_a?(Array)
        levers = levers.map { |given| choose("a lever", given, Purge::LEVERS, call: :purge) }
        Purge.run(levers, dry_run: dry_run, **options)
      end

      def rss = Memscope.rss

      def heap_graph(paths_to: nil, **options)
        graph = HeapGraph.take(paths_to: class_name(paths_to), **options)
        graph.known? ? LastReadings.keep(graph) : graph
      end

      def class_name(given)
        Field.check(:paths_to, given, "a class's name", call: :heap_graph) { given.nil? || given.is_a?(String) }
      end

      # For other processes: counts in a forked child if a count would stop this process for long.
      # A census of private pages is not kept: compared with it, a later one would seem to have grown.
      def census(gc: false, private: false)
        private ? Census.bounded(gc: gc, private: private) : LastReadings.census(gc: gc)
      end

      def take_census(gc: false) = census(gc: gc).then { kept_censuses }

      def kept_censuses = Runtime.current.kept(:censuses)

      def take_heap_graph(paths_to: nil, strings: false)
        [LastReadings.heap_graph(paths_to: class_name(paths_to), strings: strings)]
      end

      def kept_heap_graph = Runtime.current.kept(:heap_graph)

      def diagnosis_with_forecast = Diagnosed.read

      # In Puma's master, the reports as they came: none is parsed.
      def workers
        current = Runtime.current.workers
        current.respond_to?(:answer) ? current.answer : Loading.unit(CALLS[:workers].type).read
      end

      # Writes to `path` in this process's own view of the file system, which the client cannot know.
      def dump(path: nil, format: "perfetto", **options)
        Field.check(:path, path, "an absolute path", call: :dump) { Field.absolute?(path) }
        Loading.unit(:Dump).write(path, format: choose(:format, format, Dump::FORMATS.keys, call: :dump), **options)
      rescue SystemCallError => e
        raise Dump::Failed, WORDS.fill(:no_dump, why: e.class.new.message)
      end

      def malloc_profile_start(backend: "auto", **options)
        MallocProfile.lease.start(backend: choose(:backend, backend, MallocProfile::BACKENDS), **options)
      end

      def check_actions
        raise Refused, WORDS[:no_actions] unless Loading.unit(:Configuration).so_far.actions
      end

      # `given` is a String if it comes from another process, and a Symbol if it comes from this process.
      def choose(argument, given, allowed, call: nil)
        allowed.find { |name| name.name == given.to_s } || Field.refuse(argument, given, allowed.join(", "), call: call)
      end
    end
  end
end
