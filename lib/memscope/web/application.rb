# frozen_string_literal: true

require_relative "access"
require_relative "actions/profile"
require_relative "actions/purge"
require_relative "assets"
require_relative "cluster"
require_relative "log_throttle"
require_relative "pages"
require_relative "readings"
require_relative "request"
require_relative "response"

module Memscope
  module Web
    # Decides who may ask, finds what answers, and logs what is refused or fails.
    #
    # @api private
    class Application
      READING = %w[GET HEAD].freeze
      CLOSED = "Access denied. See the application log for how to allow it."
      CHALLENGE = { "www-authenticate" => 'Basic realm="memscope", charset="UTF-8"' }.freeze
      # Where they are not those for reading.
      VERBS = { "/purge" => %w[POST].freeze, "/profile" => [*READING, "POST"].freeze }.freeze
      # What answers, where it is no page and no asset.
      HANDLERS = { "/purge" => :purge, "/metrics" => :metrics, "/debug/pprof/heap" => :heap_profile,
                   "/profile/flamegraph" => :flame_graph }.freeze
      METRICS = "text/plain; version=0.0.4; charset=utf-8"
      private_constant :READING, :CLOSED, :CHALLENGE, :VERBS, :HANDLERS, :METRICS

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
        @heap_profile = HeapProfile.new
      end

      # @param env [Hash] of Rack
      # @return [Array(Integer, Hash, Array<String>)]
      def call(env)
        request = Request.new(env)
        verdict = verdict(env)
        response = verdict.allowed? ? answered(request) : denied(request, verdict)
        request.head? ? Response.headless(response) : response
      end

      private

      # An error allows nobody.
      def verdict(env)
        Access.decide(env, @configuration.call, @rails_env.call)
      rescue StandardError => e
        Access::Verdict.new(403, "access could not be decided: %s", "#{e.message} (#{e.class})")
      end

      def denied(request, verdict)
        log_refusal(request, verdict)
        Response.sentence(verdict.status, request.format, CLOSED, verdict.status == 401 ? CHALLENGE : {})
      end

      def answered(request)
        allowed(request)
      rescue HttpError => e
        Pages.error(e, request)
      rescue StandardError, ScriptError => e # ScriptError where a part of memscope cannot be loaded
        log(request, "failed: #{e.message.lines.first&.chomp} (#{e.class}) at #{e.backtrace&.first}")
        Response.sentence(500, request.format, "This page failed. See the application log.")
      end

      def allowed(request)
        verbs = VERBS.fetch(request.path, READING)
        found = handler(request) or raise HttpError.new(404, "Not found.")
        return Response.options(verbs) if request.verb == "OPTIONS"
        return found.call if verbs.include?(request.verb)

        raise HttpError.new(405, "Method not allowed; use #{verbs.join(' or ')}.", { "allow" => verbs.join(", ") })
      end

      # @return [#call, nil] nil where there is no such path
      def handler(request)
        path = request.path or return
        name = HANDLERS[path]
        return -> { send(name, request) } if name
        return -> { profile(request) } if path == "/profile" && request.verb == "POST"

        page = Pages::ALL[path]
        return -> { page(page.new(@readings, request), request) } if page

        asset = Assets.response(path)
        -> { asset } if asset
      end

      def page(page, request) = Pages.response(page, request, @configuration.call.actions)

      def metrics(_request) = Response.of(200, METRICS, @readings.fetch(:metrics))

      def heap_profile(request) = @heap_profile.response(request, @readings)

      # With a policy of its own, which names its scripts.
      def flame_graph(request)
        body = Pages::Profile.new(@readings, request).flame_graph
        Response.of(200, :html, body, "content-security-policy" => Memscope::Profile::Formats::FlameGraph.policy)
      end

      def purge(request)
        form = action_form(request)
        page(changing { Actions::Purge.run(form, ClusterCalls.new(@readings)) }, request)
      end

      def profile(request)
        form = action_form(request)
        outcomes = changing { Actions::Profile.run(form, ClusterCalls.new(@readings)) }
        page(Pages::Profile.new(@readings, request, form: form, outcomes: outcomes), request)
      end

      # @return [Hash{String => Array<String>}] of a form that may change the process; worker also of the query
      def action_form(request)
        raise HttpError.new(403, "Actions are disabled (`actions = false`).") unless @configuration.call.actions

        form = request.form
        objection = Forgery.objection(request.env, form[Forgery::FIELD]&.last)
        return { **request.query.slice("worker"), **form } unless objection

        log_refusal(request, objection)
        raise HttpError.new(403, "Invalid or expired form token. Reload the page and retry.")
      end

      # What was read before is outdated.
      def changing
        yield
      ensure
        @readings.forget
      end

      def log_refusal(request, verdict)
        ending = @throttle.add(verdict.sentence)
        log(request, "refused: #{verdict.reason}", ending) if ending
      end

      # One line, whatever the request contains.
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
