# frozen_string_literal: true

require "json"
require_relative "access"
require_relative "assets"
require_relative "deployment"
require_relative "forgery"
require_relative "heap_profile"
require_relative "pages"
require_relative "profiling"
require_relative "readings"
require_relative "refusal"
require_relative "refusals"
require_relative "request"
require_relative "response"

module Memscope
  module Web
    # Takes a request: whether it may be asked, what is asked, the answer.
    #
    # @api private
    class Application
      READING = %w[GET HEAD].freeze
      CLOSED = "memscope is closed here. What this request would have needed is in the log."
      CHALLENGE = { "www-authenticate" => 'Basic realm="memscope", charset="UTF-8"' }.freeze
      # Other verbs than those for looking.
      VERBS = { "/purge" => %w[POST].freeze, "/profile" => [*READING, "POST"].freeze }.freeze
      METRICS = "text/plain; version=0.0.4; charset=utf-8"
      private_constant :READING, :CLOSED, :CHALLENGE, :VERBS, :METRICS

      # @param configuration [#call] returns the Configuration
      # @param deployment [Deployment]
      # @param readings [Readings]
      # @param refusals [Refusals]
      def initialize(configuration: -> { Memscope.configuration }, deployment: Deployment.read, readings: Readings.new,
                     refusals: Refusals.new)
        @configuration = configuration
        @deployment = deployment
        @readings = readings
        @refusals = refusals
        @heap_profile = HeapProfile.new
      end

      # @param env [Hash] of Rack
      # @return [Array(Integer, Hash, Array<String>)]
      def call(env)
        request = Request.new(env)
        verdict = verdict(env)
        response = verdict.allowed? ? answered(request) : turned_away(request, verdict)
        request.head? ? Response.headless(response) : response
      end

      private

      # Nobody gets in by an error.
      def verdict(env)
        Access.decide(env, @configuration.call, @deployment)
      rescue StandardError => e
        Access::Verdict.new(403, "access could not be decided: %s", "#{e.message} (#{e.class})")
      end

      def turned_away(request, verdict)
        log_refusal(request, verdict)
        Response.sentence(verdict.status, request.format, CLOSED, verdict.status == 401 ? CHALLENGE : {})
      end

      def answered(request)
        permitted(request)
      rescue StandardError, ScriptError => e # the second where a part of memscope cannot be loaded
        log(request, "failed: #{e.message.lines.first&.chomp} (#{e.class}) at #{e.backtrace&.first}")
        Response.sentence(500, request.format, "This page failed. What happened is in the log.")
      end

      def permitted(request)
        verbs = VERBS.fetch(request.path, READING)
        found = handler(request) or raise Refusal.new(404, "There is no such page.")
        return Response.options(verbs) if request.verb == "OPTIONS"
        return found.call if verbs.include?(request.verb)

        raise Refusal.new(405, "Not by #{request.verb[/\A[A-Z]{1,20}\z/] || 'this verb'}: here it is " \
                               "#{verbs.join(' or ')}.", { "allow" => verbs.join(", ") })
      rescue Refusal => e
        refused(request, e)
      end

      # @return [#call, nil] nil where there is no such path
      def handler(request)
        path = request.path or return
        calls = { "/purge" => :purge, "/metrics" => :metrics, "/debug/pprof/heap" => :heap_profile,
                  "/profile/flamegraph" => :flame_graph }
        return -> { send(calls[path], request) } if calls.key?(path)
        return -> { profile(request) } if path == "/profile" && request.verb == "POST"

        page = Pages::ALL[path]
        return -> { Pages.response(page.new(@readings, request), request, @configuration.call.actions) } if page

        asset = Assets.response(path)
        -> { asset } if asset
      end

      def metrics(_request) = Response.of(200, METRICS, @readings.fetch(:metrics))

      def heap_profile(request) = @heap_profile.response(request, @readings)

      # With the page's own policy, which names its scripts.
      def flame_graph(request)
        body = Pages::Profile.new(@readings, request).reading.to_html
        Response.of(200, :html, body, "content-security-policy" => Memscope::Profile::Formats::FlameGraph.policy)
      end

      def purge(request)
        form = checked_form(request)
        Pages.response(pulled({ **request.query.slice("worker"), **form }), request, true)
      end

      def profile(request)
        form = { **request.query.slice("worker"), **checked_form(request) }
        begin
          outcomes = Pages::Profile.act(form, Profiling.new(@readings))
        ensure
          @readings.forget
        end
        Pages.response(Pages::Profile.new(@readings, request, form: form, outcomes: outcomes), request, true)
      end

      # @return [Hash{String => Array<String>}] of a form that may change the process
      def checked_form(request)
        raise Refusal.new(403, "Actions are switched off here.") unless @configuration.call.actions

        form = request.form
        objection = Forgery.objection(request.env, form[Forgery::FIELD]&.last)
        return form unless objection

        log_refusal(request, objection)
        raise Refusal.new(403, "This form is not from a page of this visit: go back, reload it, and try again.")
      end

      # What is read from now on is of the process as it is now.
      def pulled(form)
        Pages::Returned.pull(form)
      ensure
        @readings.forget
      end

      def refused(request, refusal)
        return Pages.refusal(refusal, request) if request.format == :html

        Response.sentence(refusal.status, request.format, refusal.message, refusal.headers)
      end

      # What the sentence is about may be anything: only the sentence tells kinds apart.
      def log_refusal(request, verdict)
        more = @refusals.add(verdict.sentence)
        log(request, "refused: #{verdict.reason}", more) if more
      end

      # One line, whatever the request has put into it.
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
