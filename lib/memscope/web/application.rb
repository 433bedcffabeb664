# frozen_string_literal: true

require "cgi/escape"
require "digest"
require "erb"
require "fileutils"
require "json"
require "rack"
require "rack/auth/basic"
require "rack/body_proxy"
require "rack/mime"
require "tmpdir"
require "uri"
%w[request access assets processes pprof page actions pages/history pages/overview pages/objects pages/profile
   pages/allocator].each { |part| require_relative part }

module Memscope
  module Web
    # Checks access, dispatches requests, and logs refusals and failures.
    # @api private
    class Application
      PAGES = Page::PAGES.transform_values { |title| Pages.const_get(title) }.freeze
      # Readings with an address of their own for JSON and text, and the page that shows each.
      READINGS = { "/ledger" => "/", "/doctor" => "/", "/workers" => "/", "/census" => "/objects",
                   "/heap" => "/objects", "/arenas" => "/allocator", "/size_classes" => "/allocator",
                   "/fragmentation" => "/allocator", "/ruby_heap" => "/allocator", "/mappings" => "/allocator" }.freeze
      # Those that need no page. The pages of the others keep or choose them.
      PLAIN = %i[doctor arenas fragmentation ruby_heap mappings].freeze
      READS = { "/metrics" => :metrics, "/profile/flamegraph" => :flame_graph,
                **PAGES.transform_values { :page }, **READINGS.transform_values { :reading },
                **Assets::ALL.transform_values { :asset }, **Pprof::PATHS.transform_values { :pprof } }.freeze
      # For each form: the method of Actions, the page that answers it, and the reading that JSON and text have of it.
      ACTIONS = { "/purge" => [:purge, Actions::Returned], "/profile" => [:profile, Pages::Profile],
                  "/doctor" => [:collect, Pages::Overview, :diagnosis], "/census" => [:census, Pages::Objects, :census],
                  "/heap" => [:heap, Pages::Objects, :heap] }.freeze
      POSTS = { **ACTIONS.transform_values { :act }, "/dump" => :dump }.freeze
      HANDLERS = { "GET" => READS, "HEAD" => READS, "POST" => POSTS }.freeze
      # The headers of all responses. The referrer policy is same-origin: under no-referrer, browsers would send even
      # the pages' own forms with "Origin: null".
      HEADERS = File.readlines("#{__dir__}/headers.txt", chomp: true).to_h { |line| line.split(": ", 2) }.freeze
      TYPES = Request::TYPES.transform_values { |type| "#{type}; charset=utf-8" }.freeze
      # Seconds in which a reason for refusals is logged at most once: strangers must not fill the application's log.
      LOGGED = 60
      # Bytes of a dump that are read at a time.
      PART = 1 << 16

      def initialize(configuration: -> { Memscope.configuration }, processes: Processes.new, clock: Clock.method(:now))
        @configuration = configuration
        @processes = processes
        @refusals = Hash.new { |logged, sentence| logged[sentence] = TtlCache.new(clock: clock) }
        @dumping = Mutex.new
      end

      def call(env)
        request = Request.new(env)
        refusal = refusal(env)
        response = refusal ? denied(request, refusal) : answered(request)
        request.verb == "HEAD" ? [*response.first(2), []] : response
      end

      private

      # If the decision fails, the request is refused.
      def refusal(env)
        Access.refusal(env, @configuration.call)
      rescue StandardError => e
        Access.refuse(403, :undecided, "#{e.message} (#{e.class})")
      end

      def denied(request, refusal)
        log_refusal(request, refusal) if refusal.sentence
        challenge = { "www-authenticate" => 'Basic realm="memscope", charset="UTF-8"' } if refusal.status == 401
        sentence(HttpError.of(refusal.status, :denied, headers: challenge.to_h), request)
      end

      def answered(request)
        allowed(request)
      rescue StandardError, ScriptError => e # ScriptError if a part of memscope cannot be loaded
        log(request, "failed: #{e.message.lines.first&.chomp} (#{e.class}) at #{e.backtrace&.first}")
        sentence(HttpError.of(500, :failed), request)
      end

      def allowed(request)
        verbs = HANDLERS.keys.select { |verb| HANDLERS[verb].key?(request.path) }
        raise HttpError.of(404, :not_found) if verbs.empty?
        return [204, { **HEADERS, "allow" => verbs.join(", ") }, []] if request.verb == "OPTIONS"
        return send(HANDLERS[request.verb][request.path], request) if verbs.include?(request.verb)

        raise HttpError.of(405, :not_allowed, verbs: verbs.join(" or "), headers: { "allow" => verbs.join(", ") })
      rescue HttpError => e
        error(e, request)
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

      def sentence(error, request)
        return text(error) unless request.format == :json

        response(error.status, :json, "#{JSON.generate(error: error.message)}\n", error.headers)
      end

      def text(error) = response(error.status, :text, "#{error.message}\n", error.headers)

      def error(error, request)
        return sentence(error, request) unless request.format == :html

        response(error.status, :html, Page.new(@processes, request, actions: false).html(error), error.headers)
      end

      def page(request) = shown(page_of(PAGES.fetch(request.path), request), request)

      def page_of(type, request, **done) = type.new(@processes, request, actions: @configuration.call.actions, **done)

      # @param shows [Page, Reading] the source of JSON and text
      def shown(page, request, shows = page)
        case request.format
        when :json then response(200, :json, "#{shows.to_json}\n")
        when :text then response(200, :text, shows.to_s(unicode: true))
        else response(200, :html, page.html)
        end
      end

      # As HTML, the page that shows the reading.
      def reading(request)
        path = READINGS.fetch(request.path)
        return moved(request, path) if request.format == :html

        name = request.path.delete_prefix("/").to_sym
        plain = @processes.read(@processes.place(request.query), name) if PLAIN.include?(name)
        shown(nil, request, plain || page_of(PAGES.fetch(path), request).data(name))
      end

      # To the part of the page that shows the reading.
      def moved(request, path)
        query = request.path == "/doctor" ? { **request.query, findings: 1 } : request.query
        place = "#{request.link(path, query)}#{request.path.sub('/', '#') unless path == '/'}"
        response(302, :text, "See #{place}\n", "location" => place)
      end

      def metrics(_request) = response(200, Memscope::Prometheus::CONTENT_TYPE, @processes.fetch(:metrics))

      # Errors are sentences in plain text: the client is not a browser.
      def pprof(request)
        response(200, "application/octet-stream", Pprof.of(request, @processes),
                 "content-disposition" => %(attachment; filename="#{File.basename(request.path)}.pb.gz"))
      rescue HttpError => e
        text(e)
      end

      # Has its own Content-Security-Policy, with the hashes of its inline scripts and styles.
      def flame_graph(request)
        body = page_of(Pages::Profile, request).flame_graph
        response(200, :html, body, "content-security-policy" => Report::FlameGraph.policy)
      end

      # Drops all cached readings after the action, even if that raises.
      def act(request)
        name, type, reading = ACTIONS.fetch(request.path)
        actions = actions(request)
        done = begin
          actions.public_send(name)
        ensure
          @processes.forget
        end
        page = page_of(type, request, form: actions.form, **done)
        shown(page, request, reading ? page.data(reading) : page)
      end

      # Writes one dump at a time, since each takes the memory of a child. The unlinked file takes disk space until its
      # download ends.
      def dump(request)
        actions = actions(request)
        raise HttpError.of(409, :dumping, headers: { "retry-after" => "5" }) unless @dumping.try_lock

        begin
          file, name = actions.dump
        ensure
          @dumping.unlock
        end
        [200, { **HEADERS, "content-type" => "application/octet-stream", "content-length" => file.size.to_s,
                           "content-disposition" => %(attachment; filename="#{name}") },
         ::Rack::BodyProxy.new(file.each_line(nil, PART)) { file.close }]
      end

      # The actions of a form, whose `worker` may also be in the query. Refuses a form that no page of this application
      # posted. A census only reads, so `actions = false` does not forbid it, unless garbage is to be collected first.
      def actions(request)
        form = { **request.query.slice("worker"), **request.form }
        if (refusal = Access.forgery(request.env))
          log_refusal(request, refusal)
          raise HttpError.of(403, :foreign_form)
        end
        actions = Actions.new(form, @processes)
        return actions if @configuration.call.actions || (request.path == "/census" && !actions.collect?)

        raise HttpError.of(403, :actions_disabled)
      end

      def log_refusal(request, refusal)
        @refusals[refusal.sentence].fetch(LOGGED) { log(request, "refused: #{refusal.reason}") }
      end

      # Logs exactly one line, whatever the request contains.
      def log(request, text)
        line = "memscope web: #{request.verb} #{request.path} from #{request.env['REMOTE_ADDR'].to_s[0, 60]}: #{text}"
        line = line.b.gsub(/[^\x20-\x7e]/n, "?")[0, 500]
        errors = request.env["rack.errors"]
        logger = @configuration.call.logger
        logger ? logger.warn(line) : errors&.puts(line)
      rescue StandardError # of the configuration, or of the application's logger
        errors&.puts(line)
      end
    end
  end
end
