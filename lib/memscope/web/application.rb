# frozen_string_literal: true

require_relative "../remote/calls"
require_relative "../report"
%w[response request access assets drawing treemap readings cluster view pages/readings pages/census pages/heap_graph
   pages/overview pages/history pages/profile actions].each { |part| require_relative part }

module Memscope
  module Web
    # Checks access, dispatches requests, and logs refusals and failures.
    #
    # @api private
    class Application
      FAILED = "This page failed. See the application log."
      # The pages that GET shows.
      PAGES = { "/" => Pages::Overview, "/ledger" => Pages::OfLedger, "/doctor" => Pages::OfDiagnosis,
                "/history" => Pages::History, "/arenas" => Pages::Arenas, "/size_classes" => Pages::SizeClasses,
                "/ruby_heap" => Pages::RubyHeap, "/census" => Pages::Census, "/heap" => Pages::HeapGraph,
                "/mappings" => Pages::Mappings, "/workers" => Pages::Workers, "/profile" => Pages::Profile }.freeze
      # The method that answers each path; assets are handled by `asset`.
      READS = { "/metrics" => :metrics, "/debug/pprof/heap" => :pprof, "/debug/pprof/objects" => :pprof,
                "/profile/flamegraph" => :flame_graph, **PAGES.transform_values { :page } }.freeze
      ACTIONS = { "/purge" => :purge, "/profile" => :profile, "/doctor" => :collect, "/census" => :census,
                  "/heap" => :heap_graph, "/dump" => :dump }.freeze
      HANDLERS = { "GET" => READS, "HEAD" => READS, "POST" => ACTIONS }.freeze
      private_constant :FAILED, :PAGES, :READS, :ACTIONS, :HANDLERS

      # @param configuration [#call] returns the Configuration
      # @param rails_env [#call] returns Rails.env; nil without Rails
      # @param readings [Readings]
      # @param throttle [LogThrottle] for refusals
      def initialize(configuration: -> { Memscope.configuration },
                     rails_env: -> { ::Rails.env.to_s if defined?(::Rails.env) },
                     readings: Readings.new, throttle: LogThrottle.new)
        @configuration = configuration
        @rails_env = rails_env
        @readings = readings
        @throttle = throttle
        @pprof = { "/debug/pprof/heap" => HeapProfile.new("malloc", "heap"),
                   "/debug/pprof/objects" => HeapProfile.new("objects", "objects") }
        @dumping = Mutex.new
      end

      # @param env [Hash] Rack's environment
      # @return [Array(Integer, Hash, Array<String>)]
      def call(env)
        request = Request.new(env)
        verdict = verdict(env)
        response = verdict.allowed? ? answered(request) : denied(request, verdict)
        request.head? ? [*response.first(2), []] : response
      end

      private

      # If the decision fails, the request is refused.
      def verdict(env)
        Access.decide(env, @configuration.call, @rails_env.call)
      rescue StandardError => e
        Access::Verdict.new(403, "access could not be decided: %s", "#{e.message} (#{e.class})")
      end

      def denied(request, verdict)
        log_refusal(request, verdict) unless verdict.first_visit?
        challenge = { "www-authenticate" => 'Basic realm="memscope", charset="UTF-8"' } if verdict.status == 401
        Response.sentence(verdict.status, request.format,
                          "Access denied. See the application log for how to allow it.", challenge.to_h)
      end

      def answered(request)
        begin
          allowed(request)
        rescue HttpError => e
          error(e, request)
        end
      rescue StandardError, ScriptError => e # ScriptError if a part of memscope cannot be loaded
        log_failure(request, e)
        Response.sentence(500, request.format, FAILED)
      end

      def allowed(request)
        verbs = HANDLERS.keys.select { |verb| handler(verb, request.path) }
        raise HttpError.new(404, "Not found.") if verbs.empty?
        return Response.options(verbs) if request.verb == "OPTIONS"
        return send(handler(request.verb, request.path), request) if verbs.include?(request.verb)

        raise HttpError.new(405, "Method not allowed; use #{verbs.join(' or ')}.", { "allow" => verbs.join(", ") })
      end

      def handler(verb, path) = HANDLERS[verb][path] || (:asset if verb != "POST" && Assets.find(path))

      def asset(request) = Assets.response(Assets.find(request.path))

      def page(request) = shown(PAGES.fetch(request.path).new(@readings, request), request)

      def shown(page, request)
        case request.format
        when :json then Response.of(200, :json, "#{page.json}\n")
        when :text then Response.of(200, :text, page.text)
        else html(200, page, view(request))
        end
      end

      def view(request, actions: @configuration.call.actions)
        View.new(request, actions: actions, calls: -> { ClusterCalls.new(@readings) })
      end

      def error(error, request)
        return html(error.status, error, view(request, actions: false), error.headers) if request.format == :html

        Response.sentence(error.status, request.format, error.message, error.headers)
      end

      def html(status, page, view, headers = {})
        Response.of(status, :html, view.page(page), { **headers, **Forgery.header(view.request, view.token) })
      end

      def metrics(_request) = Response.of(200, Memscope::Prometheus::CONTENT_TYPE, @readings.fetch(:metrics))

      def pprof(request) = @pprof.fetch(request.path).response(request, @readings)

      # Has its own Content-Security-Policy, with the hashes of its inline scripts and styles.
      def flame_graph(request)
        body = Pages::Profile.new(@readings, request).flame_graph
        Response.of(200, :html, body, "content-security-policy" => Memscope::Profile::Formats::FlameGraph.policy)
      end

      def purge(request)
        actions = actions(action_form(request))
        plan = actions.plan
        acted(request, "Purge", :purging, plan) { |step| changing { actions.purge(plan, &step) } }
      end

      def heap_graph(request)
        form = action_form(request)
        actions = actions(form)
        walk = actions.walk
        acted(request, "Heap graph", :walking, walk, place: walk.place) do
          changing { actions.heap_graph(walk) }
          Pages::HeapGraph.new(@readings, request, form: form)
        end
      end

      # Writes one dump at a time, since each takes the memory of a child. The unlinked file takes disk space until its
      # download ends.
      def dump(request)
        actions = actions(action_form(request))
        raise HttpError.new(409, "Another dump is being written.", { "retry-after" => "5" }) unless @dumping.try_lock

        begin
          Response.download(*actions.dump)
        ensure
          @dumping.unlock
        end
      end

      # Shows the page that the block returns. The block can take half a minute, so HTML is streamed: its beginning says
      # what is running, and the block gets a Proc that shows the next place.
      def acted(request, title, template, subject, place: nil)
        return shown(yield, request) unless request.format == :html

        view = view(request)
        beginning = view.beginning(title, template, subject, place: place)
        Response.parts(Forgery.header(request, view.token)) do |parts|
          show = shower(parts)
          show.call(beginning)
          result = reported(request) { yield ->(step) { show.call(view.step(step)) } }
          show.call(view.ending(result))
        end
      end

      # Writes to the client until writing fails: if the client disconnects, the purge that it started goes on.
      def shower(parts)
        gone = false
        lambda do |part|
          parts << part unless gone
        rescue StandardError
          gone = true
        end
      end

      # @return [Object] what the block returns; if it fails, an HttpError to show, since the status is already sent
      def reported(request)
        yield
      rescue HttpError => e
        e
      rescue StandardError, ScriptError => e
        log_failure(request, e)
        HttpError.new(500, FAILED)
      end

      def profile(request)
        form = action_form(request)
        actions = actions(form)
        return shown(collected(Pages::Profile, request, form), request) if actions.collect?

        outcomes = changing { actions.profile }
        shown(Pages::Profile.new(@readings, request, form: form, outcomes: outcomes), request)
      end

      def collect(request) = shown(collected(Pages::OfDiagnosis, request, action_form(request)), request)

      # A census only reads, so `actions = false` does not forbid it, unless garbage is to be collected first.
      def census(request)
        form = posted_form(request)
        actions = actions(form)
        check_actions if actions.collect?
        changing { actions.census }
        shown(Pages::Census.new(@readings, request, form: form), request)
      end

      def collected(page, request, form)
        page.new(@readings, request, form: form, collected: changing { actions(form).collect })
      end

      def actions(form) = Actions.new(form, ClusterCalls.new(@readings))

      # @return [Hash{String => Array<String>}] the fields of a form that may change the process; `worker` may also be
      #   in the query
      def action_form(request)
        check_actions
        posted_form(request)
      end

      def check_actions
        raise HttpError.new(403, "Actions are disabled (`actions = false`).") unless @configuration.call.actions
      end

      # The fields of a form. Refuses a form that no page of this application posted (Forgery).
      def posted_form(request)
        form = request.form
        objection = Forgery.objection(request.env, form[Forgery::FIELD]&.last)
        return { **request.query.slice("worker"), **form } unless objection

        log_refusal(request, objection)
        raise HttpError.new(403, "Invalid or expired form token. Reload the page and retry.")
      end

      # Drops all cached readings afterwards, even if the block raises.
      def changing
        yield
      ensure
        @readings.forget
      end

      def log_failure(request, error)
        log(request, "failed: #{error.message.lines.first&.chomp} (#{error.class}) at #{error.backtrace&.first}")
      end

      def log_refusal(request, verdict)
        ending = @throttle.add(verdict.sentence)
        log(request, "refused: #{verdict.reason}", ending) if ending
      end

      # Logs exactly one line, whatever the request contains.
      def log(request, text, ending = "")
        peer = request.env["REMOTE_ADDR"].to_s[0, 60]
        line = "memscope web: #{request.verb} #{request.path} from #{peer}: #{text}"
        line = line.b.gsub(/[^\x20-\x7e]/n, "?")[0, 500 - ending.size] + ending
        logger = logger()
        logger ? logger.warn(line) : request.env["rack.errors"]&.puts(line)
      end

      def logger
        @configuration.call.logger
      rescue StandardError
        nil
      end
    end
  end
end
