# frozen_string_literal: true

require "json"
require "rack/body_proxy"
require "uri"
require_relative "../remote/calls"
require_relative "../show/report"
require_relative "../show/flame_graph"
%w[request access assets drawing readings cluster pprof view actions pages pages/overview pages/history pages/objects
   pages/profile pages/allocator].each { |part| require_relative part }

module Memscope
  module Web
    # Checks access, dispatches requests, and logs refusals and failures.
    #
    # @api private
    class Application
      PAGES = View::PAGES.transform_values { |title| Pages.const_get(title) }.freeze
      # Readings with an address of their own for JSON and text, and the page that shows each.
      READINGS = { "/ledger" => "/", "/doctor" => "/", "/workers" => "/", "/census" => "/objects",
                   "/heap" => "/objects", "/arenas" => "/allocator", "/size_classes" => "/allocator",
                   "/fragmentation" => "/allocator", "/ruby_heap" => "/allocator",
                   "/mappings" => "/allocator" }.freeze
      # Those that are read as they are: the others are what their pages keep, choose or diagnose.
      PLAIN = %i[doctor arenas fragmentation ruby_heap mappings].freeze
      # The method that answers each path.
      READS = { **PAGES.transform_values { :page }, **READINGS.transform_values { :reading },
                **Assets::ALL.transform_values { :asset },
                **{ "/metrics" => :metrics, "/debug/pprof/heap" => :pprof, "/debug/pprof/objects" => :pprof,
                    "/profile/flamegraph" => :flame_graph } }.freeze
      ACTIONS = { "/purge" => :purge, "/profile" => :profile, "/doctor" => :collect, "/census" => :objects,
                  "/heap" => :objects, "/dump" => :dump }.freeze
      HANDLERS = { "GET" => READS, "HEAD" => READS, "POST" => ACTIONS }.freeze
      # What all responses carry. The referrer policy is same-origin: under no-referrer, browsers would send even the
      # pages' own forms with "Origin: null".
      HEADERS = {
        "content-security-policy" => "default-src 'none'; script-src 'self'; " \
                                     "style-src 'self'; img-src 'self' data:; " \
                                     "connect-src 'self'; form-action 'self'; " \
                                     "frame-ancestors 'none'; base-uri 'none'",
        "x-content-type-options" => "nosniff", "referrer-policy" => "same-origin",
        "cross-origin-resource-policy" => "same-origin", "cache-control" => "no-store", "vary" => "Accept"
      }.freeze
      TYPES = { html: "text/html; charset=utf-8", json: "application/json; charset=utf-8",
                text: "text/plain; charset=utf-8" }.freeze
      # Seconds in which a reason for refusals is logged at most once: strangers must not fill the application's log.
      LOGGED = 60
      # Bytes of a dump that are read at a time.
      PART = 1 << 16
      private_constant :PAGES, :READINGS, :PLAIN, :READS, :ACTIONS, :HANDLERS, :HEADERS, :TYPES, :LOGGED, :PART

      # @param configuration [#call] returns the Configuration
      # @param rails_env [#call] returns Rails.env; nil without Rails
      # @param readings [Readings]
      # @param clock [#call] returns seconds
      def initialize(configuration: -> { Memscope.configuration },
                     rails_env: -> { ::Rails.env.to_s if defined?(::Rails.env) },
                     readings: Readings.new, clock: Clock.method(:now))
        @configuration = configuration
        @rails_env = rails_env
        @readings = readings
        @refusals = Hash.new { |logged, sentence| logged[sentence] = TtlCache.new(clock: clock) }
        @pprof = { "/debug/pprof/heap" => HeapProfile.new("malloc", "heap"),
                   "/debug/pprof/objects" => HeapProfile.new("objects", "objects") }
        @dumping = Mutex.new
      end

      # @param env [Hash] Rack's environment
      # @return [Array(Integer, Hash, #each)]
      def call(env)
        request = Request.new(env)
        refusal = refusal(env)
        response = refusal ? denied(request, refusal) : answered(request)
        request.verb == "HEAD" ? [*response.first(2), []] : response
      end

      private

      # If the decision fails, the request is refused.
      def refusal(env)
        Access.refusal(env, @configuration.call, @rails_env.call)
      rescue StandardError => e
        Access::Refusal.new(403, "access could not be decided: %s", "#{e.message} (#{e.class})")
      end

      def denied(request, refusal)
        log_refusal(request, refusal) if refusal.sentence
        challenge = { "www-authenticate" => 'Basic realm="memscope", charset="UTF-8"' } if refusal.status == 401
        sentence(refusal.status, request, "Access denied. See the application log for how to allow it.",
                 challenge.to_h)
      end

      def answered(request)
        begin
          allowed(request)
        rescue HttpError => e
          error(e, request)
        end
      rescue StandardError, ScriptError => e # ScriptError if a part of memscope cannot be loaded
        log(request, "failed: #{e.message.lines.first&.chomp} (#{e.class}) at #{e.backtrace&.first}")
        sentence(500, request, "This page failed. See the application log.")
      end

      def allowed(request)
        verbs = HANDLERS.keys.select { |verb| HANDLERS[verb].key?(request.path) }
        raise HttpError.new(404, "Not found.") if verbs.empty?
        return [204, { **HEADERS, "allow" => verbs.join(", ") }, []] if request.verb == "OPTIONS"
        return send(HANDLERS[request.verb][request.path], request) if verbs.include?(request.verb)

        raise HttpError.new(405, "Method not allowed; use #{verbs.join(' or ')}.", { "allow" => verbs.join(", ") })
      end

      # The asset may be cached for ever, since its URL contains a digest of its content.
      def asset(request)
        asset = Assets::ALL.fetch(request.path)
        response(200, asset.type, asset.body, "cache-control" => "private, max-age=31536000, immutable")
      end

      # @param format [Symbol, String] :html, :json or :text, or a media type
      def response(status, format, body, headers = {})
        [status, { **HEADERS, "content-type" => TYPES.fetch(format, format), "content-length" => body.bytesize.to_s,
                              **headers }, [body]]
      end

      # JSON if that was asked for, else text.
      def sentence(status, request, sentence, headers = {})
        return response(status, :text, "#{sentence}\n", headers) unless request.format == :json

        response(status, :json, "#{JSON.generate(error: sentence)}\n", headers)
      end

      def error(error, request)
        return sentence(error.status, request, error.message, error.headers) unless request.format == :html

        response(error.status, :html, view(request, actions: false).page(error), error.headers)
      end

      def page(request) = shown(page_of(request.path, request), request)

      def page_of(path, request) = PAGES.fetch(path).new(@readings, request)

      def shown(page, request)
        case request.format
        when :json then response(200, :json, "#{page.json}\n")
        when :text then response(200, :text, page.text)
        else response(200, :html, view(request).page(page))
        end
      end

      # As HTML, the page that shows the reading.
      def reading(request)
        path = READINGS.fetch(request.path)
        return moved(request, path) if request.format == :html

        name = request.path.delete_prefix("/").to_sym
        calls = ClusterCalls.new(@readings)
        return body(page_of(path, request).data(name), request) unless PLAIN.include?(name)

        body(calls.read(calls.place(request.query), name), request)
      end

      # The page as HTML, its reading alone as JSON and text.
      def answer(page, reading, request) = request.format == :html ? shown(page, request) : body(reading, request)

      def body(reading, request)
        text = request.format == :json ? "#{reading.to_json}\n" : reading.to_s(unicode: true)
        response(200, request.format, text)
      end

      # To the part of the page that shows the reading.
      def moved(request, path)
        query = URI.encode_www_form(request.path == "/doctor" ? { **request.query, findings: 1 } : request.query)
        part = request.path.sub("/", "#") unless path == "/"
        base = request.base.empty? ? path : "#{request.base}#{path.chomp('/')}"
        place = "#{base}#{"?#{query}" unless query.empty?}#{part}"
        response(302, :text, "See #{place}\n", "location" => place)
      end

      def view(request, actions: @configuration.call.actions)
        View.new(request, actions: actions, calls: -> { ClusterCalls.new(@readings) })
      end

      def metrics(_request) = response(200, Memscope::Prometheus::CONTENT_TYPE, @readings.fetch(:metrics))

      def pprof(request) = response(*@pprof.fetch(request.path).response(request, @readings))

      # Has its own Content-Security-Policy, with the hashes of its inline scripts and styles.
      def flame_graph(request)
        body = Pages::Profile.new(@readings, request).flame_graph
        response(200, :html, body, "content-security-policy" => Report::FlameGraph.policy)
      end

      def purge(request)
        actions = actions(action_form(request))
        shown(Pages::Returned.new(changing { actions.purge }), request)
      end

      # A census and a heap graph are answered by the page that shows both. A census only reads, so `actions = false`
      # does not forbid it, unless garbage is to be collected first.
      def objects(request)
        form = posted_form(request)
        actions = actions(form)
        kind = request.path.delete_prefix("/").to_sym
        check_actions if kind == :heap || actions.collect?
        taken = changing { kind == :heap ? actions.heap_graph : actions.census }
        page = Pages::Objects.new(@readings, request, form: form, taken: { kind => taken })
        answer(page, page.data(kind), request)
      end

      # Writes one dump at a time, since each takes the memory of a child. The unlinked file takes disk space until its
      # download ends.
      def dump(request)
        actions = actions(action_form(request))
        raise HttpError.new(409, "Another dump is being written.", { "retry-after" => "5" }) unless @dumping.try_lock

        begin
          file, name = actions.dump
        ensure
          @dumping.unlock
        end
        [200, { **HEADERS, "content-type" => "application/octet-stream", "content-length" => file.size.to_s,
                           "content-disposition" => %(attachment; filename="#{name}") },
         ::Rack::BodyProxy.new(file.each_line(nil, PART)) { file.close }]
      end

      def profile(request)
        form = action_form(request)
        actions = actions(form)
        done = changing { actions.collect? ? { collected: actions.collect } : { outcomes: actions.profile } }
        shown(Pages::Profile.new(@readings, request, form: form, **done), request)
      end

      def collect(request)
        form = action_form(request)
        collected = changing { actions(form).collect }
        page = Pages::Overview.new(@readings, request, form: form, collected: collected)
        answer(page, page.diagnosis, request)
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

      # The fields of a form. Refuses a form that no page of this application posted.
      def posted_form(request)
        form = request.form
        refusal = Access.forgery(request.env)
        return { **request.query.slice("worker"), **form } unless refusal

        log_refusal(request, refusal)
        raise HttpError.new(403, "The form does not come from these pages. Reload " \
                                 "the page and retry; a program sends " \
                                 "`Sec-Fetch-Site: same-origin`.")
      end

      # Drops all cached readings afterwards, even if the block raises.
      def changing
        yield
      ensure
        @readings.forget
      end

      def log_refusal(request, refusal)
        @refusals[refusal.sentence].fetch(LOGGED) { log(request, "refused: #{refusal.reason}") }
      end

      # Logs exactly one line, whatever the request contains.
      def log(request, text)
        line = "memscope web: #{request.verb} #{request.path} from #{request.env['REMOTE_ADDR'].to_s[0, 60]}: #{text}"
        line = line.b.gsub(/[^\x20-\x7e]/n, "?")[0, 500]
        logger ? logger.warn(line) : request.env["rack.errors"]&.puts(line)
      rescue StandardError # of the application's logger
        request.env["rack.errors"]&.puts(line)
      end

      def logger
        @configuration.call.logger
      rescue StandardError
        nil
      end
    end
  end
end
