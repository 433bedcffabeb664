# frozen_string_literal: true

require_relative "../dump"
require_relative "../heap_graph"
require_relative "../malloc_profile"
require_relative "../purge"
require_relative "pages/readings"
require_relative "response"

module Memscope
  module Web
    # The requests that change processes, and those that walk a heap: POST /purge, /profile, /doctor, /census, /heap and
    # /dump.
    # The first two take the parameter worker: a worker's index, or "all" (the default). The parameter pid names the
    # process that the page with the button showed: if given, no other process is changed.
    #
    # @api private
    module Actions
      ALL = "all"
      LEVERS = Purge::LEVERS.map(&:name).freeze
      PROFILE = %w[start stop].freeze
      COLLECT = "gc"
      TAKE = "take"
      RELOAD = "Reload the page."
      PLUGIN = "Try again; with `plugin :memscope` in config/puma.rb every worker can be chosen."
      private_constant :ALL, :LEVERS, :PROFILE, :COLLECT, :TAKE, :RELOAD, :PLUGIN

      # A purge that was requested and can run: levers (empty for all), dry_run, worker (as given) and the places.
      Plan = Struct.new(:levers, :dry_run, :worker, :places)

      # A heap graph that was requested: the place, and the options of HeapGraph::Kept.take.
      Walk = Struct.new(:place, :options)

      class << self
        # @param form [Hash{String => Array<String>}] lever: names, or "all"; dry_run: "1" to predict only; worker; pid
        # @param calls [ClusterCalls]
        # @return [Plan]
        # @raise [HttpError] for wrong parameters, or if the request reached another process than the page's
        def plan(form, calls)
          levers = levers(form.fetch("lever", []))
          worker = form["worker"]&.last
          places = calls.choose(worker)
          check(places, form)
          check_levers(levers) if places.one? && places.first.here?
          Plan.new(levers, form["dry_run"]&.last == "1", worker, places)
        end

        # @param plan [Plan]
        # @param calls [ClusterCalls]
        # @yieldparam place [ClusterCalls::Place] each process before its purge
        # @return [Pages::Returned, Pages::ReturnedByWorkers]
        # @raise [HttpError]
        def purge(plan, calls, &)
          result = calls.purge(plan.levers, dry_run: plan.dry_run, worker: plan.worker, &)
          (result.is_a?(Purge::WorkerResults) ? Pages::ReturnedByWorkers : Pages::Returned).new(result)
        rescue ArgumentError => e
          raise HttpError.new(400, "#{e.message.delete_prefix('Memscope.purge: ')}.")
        rescue Purge::Busy => e
          raise HttpError.new(409, "#{e.message.sub(/\A./, &:upcase)}.", { "retry-after" => "1" })
        end

        # @param form [Hash{String => Array<String>}]
        # @return [Boolean] whether it asks for a full GC before the page is read
        def collect?(form) = form["do"]&.last == COLLECT

        # @param form [Hash{String => Array<String>}] do: gc; worker, pid
        # @param calls [ClusterCalls]
        # @return [Purge::Result] of a full GC in the process of the page
        # @raise [HttpError]
        def collect(form, calls)
          raise HttpError.parameter("do", form["do"]&.last, COLLECT) unless collect?(form)

          place = calls.place(form.slice("worker"))
          check([place], form)
          purge(Plan.new([:gc], false, place.index&.to_s), calls).reading
        end

        # @param form [Hash{String => Array<String>}] do: take, or gc to collect garbage first; worker, pid
        # @param calls [ClusterCalls]
        # @return [void]
        # @raise [HttpError]
        def census(form, calls)
          unless collect?(form) || form["do"]&.last == TAKE
            raise HttpError.parameter("do", form["do"]&.last, "#{TAKE}, #{COLLECT}")
          end

          place = calls.place(form.slice("worker"))
          check([place], form)
          calls.take_census(place, gc: collect?(form))
        end

        # @param form [Hash{String => Array<String>}] do: take; paths_to: a class's name, or empty; strings: "1" to look
        #   for duplicates; worker, pid
        # @param calls [ClusterCalls]
        # @return [Walk]
        # @raise [HttpError] for wrong parameters, or if the request reached another process than the page's
        def walk(form, calls)
          action, paths_to, strings = form.values_at("do", "paths_to", "strings").map { |values| values&.last }
          raise HttpError.parameter("do", action, TAKE) unless action == TAKE

          place = calls.place(form.slice("worker"))
          check([place], form)
          paths_to = paths_to.to_s.strip
          Walk.new(place, { paths_to: (paths_to unless paths_to.empty?), strings: strings == "1" })
        end

        # @param walk [Walk]
        # @param calls [ClusterCalls]
        # @return [void]
        # @raise [HttpError]
        def heap_graph(walk, calls)
          calls.take_heap_graph(walk.place, **walk.options)
        rescue ArgumentError => e
          raise HttpError.new(400, "#{e.message.delete_prefix('Memscope.heap_graph: ')}.")
        end

        # @param form [Hash{String => Array<String>}] format: of the file; worker, pid
        # @param calls [ClusterCalls]
        # @return [Array(File, String)] the dump, open for reading, and a name for it
        # @raise [HttpError] for wrong parameters, if the request reached another process than the page's, or if there
        #   is no dump
        def dump(form, calls)
          given = form["format"]&.last || Dump::FORMATS.keys.first.name
          format = Dump::FORMATS.keys.find { |one| one.name == given }
          raise HttpError.parameter("format", given, Dump::FORMATS.keys.join(", ")) unless format

          place = calls.place(form.slice("worker"))
          check([place], form)
          [calls.dump(place, format), "memscope-#{place.pid}#{Dump::FORMATS.fetch(format).first}"]
        end

        # @param form [Hash{String => Array<String>}] do: start or stop; backend, rate
        # @param calls [ClusterCalls]
        # @return [Array<ClusterCalls::Outcome>]
        # @raise [HttpError] for wrong parameters, or if every process failed
        def profile(form, calls)
          action = form["do"]&.last
          raise HttpError.parameter("do", action, [*PROFILE, COLLECT].join(", ")) unless PROFILE.include?(action)

          options = profile_options(form) if action == "start"
          places = calls.choose(form["worker"]&.last)
          check(places, form)
          outcomes = options ? calls.start_profile(places, **options) : calls.stop_profile(places)
          return outcomes if outcomes.any?(&:done?)

          raise HttpError.new(409, failure(outcomes))
        end

        private

        # Without the plugin any process of a server may get the request; and a worker may have been replaced.
        def check(places, form)
          pid = form["pid"]&.last or return
          return if places.size > 1 || places.first.pid.to_s == pid

          asked = pid[/\A\d{1,10}\z/] || "unknown"
          raise HttpError.new(409, "Nothing was done: the page was of process #{asked}, but the request reached " \
                                   "#{places.first}. #{places.first.index ? RELOAD : PLUGIN}")
        end

        # Checks before the response begins: its status cannot be changed later.
        def check_levers(levers)
          lever, reason = Purge.missing.slice(*levers).compact.first
          raise HttpError.new(400, "lever: #{lever} is refused: #{reason}.") if lever
        end

        # @return [Array<Symbol>] empty for all levers that this process has
        def levers(given)
          unknown = given - LEVERS - [ALL]
          return given.include?(ALL) ? [] : given.map(&:to_sym) if given.any? && unknown.empty?

          raise HttpError.parameter("lever", unknown.first, [*LEVERS, ALL].join(", "))
        end

        # Checks every option before a profile starts in any process.
        def profile_options(form)
          given = form["backend"]&.last || "auto"
          backend = MallocProfile::BACKENDS.find { |name| name.name == given }
          raise HttpError.parameter("backend", given, MallocProfile::BACKENDS.join(", ")) unless backend

          given = form["rate"]&.last || MallocProfile::RATE.to_s
          rate = Integer(given, 10, exception: false) || given[0, 20]
          { rate: rate, backend: backend }.tap { |options| MallocProfile.check(**options) }
        rescue ArgumentError => e
          raise HttpError.new(400, "#{e.message[/rate: .*/] || e.message}.")
        end

        def failure(outcomes)
          return "#{outcomes.first.reason}." unless outcomes.first.place.index

          outcomes.map { |outcome| "#{outcome.place.to_s.capitalize}: #{outcome.reason}." }.join(" ")
        end
      end
    end
  end
end
