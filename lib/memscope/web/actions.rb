# frozen_string_literal: true

module Memscope
  module Web
    # A posted form that changes processes, or walks a heap: POST /purge, /profile, /doctor, /census, /heap or /dump.
    # /purge and /profile take the parameter worker: a worker's index, or "all". The parameter pid names the process
    # that the page with the button showed: if given, no other process is changed, except with worker=all in a cluster.
    # Without both, all workers are meant.
    #
    # Methods return the contents of the page that answers, as Page.new takes them. They raise HttpError for invalid
    # parameters, or if the request reached a process other than the page's.
    # @api private
    class Actions
      LEVERS = [*Purge::LEVERS.map(&:name), Processes::ALL].freeze
      # Seconds after which a profile that was started from a page ends automatically.
      PROFILE_SECONDS = 3600
      # Seconds that a heap dump may take, while a browser waits.
      DUMP_SECONDS = 30

      # The result of a purge in one process, or in several workers.
      class Returned < Page
        # @return [Purge::Result, nil] of the only process; nil if several workers were called
        def result = (outcomes.first.result if outcomes.one?)

        def dry_run? = outcomes.filter_map(&:result).any?(&:dry_run?)

        # @return [Integer, nil] fall of RSS: a page that several workers shared counts once for each. nil for a dry
        #   run, and if that of one worker is unknown
        def returned_bytes = sum(:returned_bytes)

        # @return [Integer, nil] bytes that the machine gained, or nil as above
        def returned_private_bytes = sum(:returned_private_bytes)

        def to_json(*)
          return result.to_json if result

          JSON.generate(returned_bytes: returned_bytes, returned_private_bytes: returned_private_bytes,
                        workers: outcomes.map { |one| { **one.summary, result: one.result } })
        end

        def to_s(**)
          texts = outcomes.map { |one| one.reason || one.result.to_s(unicode: true) }
          result ? texts.first : outcomes.zip(texts).map { |one, text| "#{one.place}\n#{text}\n" }.join("\n")
        end

        private

        def sum(field) = (total(outcomes.filter_map(&:result).map(&field)) if outcomes.any?(&:done?))
      end

      attr_reader :form

      def initialize(form, processes)
        @form = form
        @processes = processes
      end

      def collect? = value("do") == "gc"

      # Parameters: `lever`, names, or "all"; `dry_run`, "1" to predict only, "0" or nothing to purge.
      #
      # @raise [HttpError] also if only one process was called, and it did not answer
      def purge
        given = @form.fetch("lever", [])
        unknown = given - LEVERS
        raise HttpError.parameter("lever", unknown.first, LEVERS.join(", ")) if given.empty? || unknown.any?

        levers = given.include?(Processes::ALL) ? [] : given.map(&:to_sym)
        { outcomes: run_purge(places, levers, dry_run: set?("dry_run")) }
      end

      # Parameters: `do`, "gc".
      #
      # @return [Hash] collected: of a full GC in the process of the page
      def collect
        choice("do", %w[gc])
        { collected: run_purge([place], [:gc]).first.result }
      end

      # Parameters: `do`, "take", or "gc" to collect garbage first.
      def census
        choice("do", %w[take gc])
        { taken: { census: @processes.call(place, :take_census, gc: collect?) } }
      end

      # Parameters: `paths_to`, a class's name, or empty; `strings`, "1" to look for duplicates.
      def heap
        choice("do", %w[take])
        paths_to = value("paths_to").to_s.strip
        options = { paths_to: (paths_to unless paths_to.empty?), strings: set?("strings") }
        { taken: { heap: @processes.call(place, :take_heap_graph, timeout: :graph, **options) } }
      end

      # Has the process write a heap dump, to a path that no other user may open. The path is removed before this method
      # returns, whether or not there is a dump. Parameters: `format`, one of Dump::FORMATS.
      #
      # @return [Array(File, String)] the dump, open for reading, and a name for it
      def dump
        format = choice("format", Dump::FORMATS.keys, Dump::FORMATS.keys.first)
        place = place()
        directory = Dir.mktmpdir("memscope-")
        path = File.join(directory, "dump")
        @processes.call(place, :dump, timeout: :graph, path: path, format: format, deadline: DUMP_SECONDS)
        [File.open(path, "rb"), "memscope-#{place.pid}#{Dump::FORMATS.fetch(format).first}"]
      rescue SystemCallError => e
        raise HttpError.of(503, :no_dump, error: e.class.new.message)
      ensure
        remove(directory) if directory
      end

      # Parameters: `do`, "start", "stop", or "gc" to collect garbage; `kind`, "malloc", with `backend` and `rate`, or
      # "objects", with `budget`. A profile is stopped that was started from a page, whichever worker served that page.
      #
      # @raise [HttpError] also if every process failed
      def profile
        verb = choice("do", %w[start stop gc])
        return collect if verb == "gc"

        options = profile_options if verb == "start"
        outcomes = @processes.call_each(places, options ? :"#{profiler}_start" : :"#{profiler}_stop_shared",
                                        timeout: :profile, **options.to_h)
        return { outcomes: outcomes } if outcomes.any?(&:done?)

        reasons = outcomes.map { |one| [*(one.place.to_s.capitalize if one.place.index), "#{one.reason}."].join(": ") }
        raise HttpError.new(409, reasons.join(" "))
      end

      private

      def run_purge(places, levers, dry_run: false)
        options = { timeout: :purge, levers: levers, dry_run: dry_run }
        return @processes.call_each(places, :purge, **options) unless places.one?

        [Processes::Outcome.new(places.first, @processes.call(places.first, :purge, **options))]
      end

      def value(name) = @form[name]&.last

      def choice(name, allowed, default = nil) = HttpError.choose(name, value(name) || default, allowed)

      def set?(name) = choice(name, %w[0 1], "0") == "1"

      def place = named(@processes.choose(value("worker"), all: false)).first

      def profiler = Processes::PROFILERS.fetch(choice("kind", Processes::PROFILERS.keys, "malloc"))

      def places
        chosen = @processes.choose(value("worker"))
        value("worker") == Processes::ALL && chosen.size > 1 ? chosen : named(chosen)
      end

      # The process with the form's pid. Without the plugin any process of a server may get the request, and a worker
      # may have been replaced.
      def named(places)
        pid = value("pid") or return places
        found = places.select { |place| place.pid.to_s == pid }
        return found if found.any?

        raise HttpError.of(409, places.one? ? :another_process : :no_worker,
                           asked: pid[/\A\d{1,10}\z/] || "unknown", reached: places.first,
                           advice: HttpError.of(409, places.first.index ? :reload : :try_again).message)
      end

      # Checks every option before a profile starts in any process.
      def profile_options
        options = if profiler == :object_profile
                    { budget: number("budget", ObjectProfile::BUDGET) }
                  else
                    { rate: number("rate", MallocProfile::RATE),
                      backend: choice("backend", MallocProfile::BACKENDS, :auto) }
                  end
        Memscope.const_get(Calls::PROFILERS.fetch(profiler)).check(**options)
        { seconds: PROFILE_SECONDS, shared: true, **options }
      rescue Invalid => e
        raise HttpError.invalid(e)
      end

      # The check refuses a text that is not a number.
      def number(name, default)
        given = value(name) or return default
        Integer(given, 10, exception: false) || Float(given, exception: false) || given[0, 20]
      end

      # A process that did not answer in time may still create its file, and remove it, while this method runs. The
      # process does so only once, so the retries end.
      def remove(directory)
        FileUtils.remove_entry(directory)
      rescue Errno::ENOTEMPTY, Errno::ENOENT
        retry if File.exist?(directory)
      end
    end
  end
end
