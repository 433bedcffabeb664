# frozen_string_literal: true

module Memscope
  module Web
    # A posted form that changes processes, or walks a heap: POST /purge, /profile, /doctor, /census, /heap or /dump.
    # /purge and /profile take the parameter worker: a worker's index, or "all". The parameter pid names the process
    # that the page with the button showed: if given, no other process is changed, except with worker=all in a cluster.
    # Without both, all workers are meant.
    #
    # Methods raise HttpError for invalid parameters, or if the request reached a process other than the page's.
    #
    # @api private
    class Actions
      LEVERS = Purge::LEVERS.map(&:name).freeze
      private_constant :LEVERS

      # @param form [Hash{String => Array<String>}]
      # @param calls [ClusterCalls]
      def initialize(form, calls)
        @form = form
        @calls = calls
      end

      # Parameters: `lever`, names, or "all"; `dry_run`, "1" to predict only, "0" or nothing to purge.
      #
      # @return [Array<ClusterCalls::Outcome>] for each process, a Purge::Result
      def purge
        given = @form.fetch("lever", [])
        unknown = given - LEVERS - [ClusterCalls::ALL]
        if given.empty? || unknown.any?
          raise HttpError.parameter("lever", unknown.first, [*LEVERS, ClusterCalls::ALL].join(", "))
        end

        levers = given.include?(ClusterCalls::ALL) ? [] : given.map(&:to_sym)
        @calls.purge(places, levers, dry_run: set?("dry_run"))
      end

      # @return [Boolean] whether the form asks for a full GC before the page is read
      def collect? = value("do") == "gc"

      # @return [Purge::Result] of a full GC in the process of the page
      def collect
        choice("do", %w[gc])
        @calls.purge([place], [:gc], dry_run: false).first.result
      end

      # Parameters: `do`, "take", or "gc" to collect garbage first.
      #
      # @return [Array<Census>] the last two
      def census
        choice("do", %w[take gc])
        @calls.call(place, :take_census, gc: collect?)
      end

      # Parameters: `paths_to`, a class's name, or empty; `strings`, "1" to look for duplicates.
      #
      # @return [Array<HeapGraph>] the graph
      def heap_graph
        choice("do", %w[take])
        paths_to = value("paths_to").to_s.strip
        @calls.call(place, :take_heap_graph, timeout: :graph, paths_to: (paths_to unless paths_to.empty?),
                                             strings: set?("strings"))
      end

      # @return [Array(File, String)] the dump, open for reading, and a name for it
      # @raise [HttpError] also if there is no dump
      def dump
        format = choice("format", Dump::FORMATS.keys, Dump::FORMATS.keys.first)
        place = place()
        [@calls.dump(place, format), "memscope-#{place.pid}#{Dump::FORMATS.fetch(format).first}"]
      end

      # Parameters: `do`, "start" or "stop"; `kind`, "malloc", with `backend` and `rate`, or "objects", with `budget`.
      #
      # @return [Array<ClusterCalls::Outcome>]
      # @raise [HttpError] also if every process failed
      def profile
        options = profile_options if choice("do", %w[start stop gc]) == "start"
        outcomes = options ? @calls.start_profile(profiler, places, **options) : @calls.stop_profile(profiler, places)
        return outcomes if outcomes.any?(&:done?)

        raise HttpError.new(409, failure(outcomes))
      end

      private

      # @return [String, nil] the last value given for a parameter
      def value(name) = @form[name]&.last

      # @return [Object] the allowed value that the parameter names
      def choice(name, allowed, default = nil) = HttpError.choose(name, value(name) || default, allowed)

      def set?(name) = choice(name, %w[0 1], "0") == "1"

      # The process of the page with the button.
      def place = named(@calls.choose(value("worker"), all: false)).first

      # The calls of the profiler of the kind that the form names.
      def profiler = ClusterCalls::PROFILERS.fetch(choice("kind", ClusterCalls::PROFILERS.keys, "malloc"))

      # The processes of all workers, or of the one that the form names.
      def places
        chosen = @calls.choose(value("worker"))
        value("worker") == ClusterCalls::ALL && chosen.size > 1 ? chosen : named(chosen)
      end

      # The process with the form's pid. Without the plugin any process of a server may get the request; and a worker
      # may have been replaced.
      def named(places)
        pid = value("pid") or return places
        found = places.select { |place| place.pid.to_s == pid }
        return found if found.any?

        asked = pid[/\A\d{1,10}\z/] || "unknown"
        reached = places.one? ? "the request reached #{places.first}" : "no worker has this pid"
        advice = "Reload the page." if places.first.index
        advice ||= "Try again; with `plugin :memscope` in config/puma.rb every worker can be chosen."
        raise HttpError.new(409, "Nothing was done: the page was of process " \
                                 "#{asked}, but #{reached}. #{advice}")
      end

      # Checks every option before a profile starts in any process.
      def profile_options
        options = if profiler == :object_profile
                    { budget: number("budget", ObjectProfile::BUDGET) }
                  else
                    { rate: number("rate", MallocProfile::RATE),
                      backend: choice("backend", MallocProfile::BACKENDS, :auto) }
                  end
        options.tap { Memscope.const_get(Calls::PROFILERS.fetch(profiler)).check(**options) }
      rescue Invalid => e
        raise HttpError.invalid(e)
      end

      # What is no number is refused by the check.
      def number(name, default)
        given = value(name) or return default
        Integer(given, 10, exception: false) || Float(given, exception: false) || given[0, 20]
      end

      def failure(outcomes)
        return "#{outcomes.first.reason}." unless outcomes.first.place.index

        outcomes.map { |outcome| "#{outcome.place.to_s.capitalize}: #{outcome.reason}." }.join(" ")
      end
    end
  end
end
