# frozen_string_literal: true

require "digest"
require "ipaddr"
require "securerandom"

module Memscope
  module Web
    # Who may use the pages.
    #
    # If `authorize` is configured, it alone decides; otherwise `username` and `password` do. If none of these is
    # configured, the pages are closed, except that under Rails, in development and test, they are open to a browser on
    # the same machine: peer and Host must be loopback (under DNS rebinding, the Host is the attacker's), and nothing
    # may hint at a proxy, since the client behind a proxy is unknown.
    #
    # @api private
    module Access
      # A decision. A refusal has the status of the response, and a reason for the log: a sentence that may contain
      # "%s", which `reason` replaces with `about`.
      Verdict = Struct.new(:status, :sentence, :about) do
        # @return [Boolean]
        def allowed? = status.nil?

        # A browser sends credentials only after it has been asked for them.
        #
        # @return [Boolean] whether there is nothing to log
        def first_visit? = equal?(ASKED)

        # @return [String]
        def reason = about ? format(sentence, about) : sentence
      end

      ALLOWED = Verdict.new.freeze
      ASKED = Verdict.new(401, "no credentials were given").freeze
      # The values of Rails.env under which the pages may be open without authorization.
      OPEN = %w[development test].freeze
      # Keys of the client's socket in Rack's environment: servers report the peer of a Unix socket as 127.0.0.1.
      SOCKETS = %w[puma.socket unicorn.socket].freeze
      HOST = /\A(?:\[(?<host>[0-9a-f:.]+)\]|(?<host>[a-z0-9.-]+))(?::\d{1,5})?\z/i
      # Headers that proxies, load balancers and tunnels add.
      FORWARDED = /\AHTTP_(?:X_FORWARDED|FORWARDED|VIA|X_REAL_IP|(?:X_)?(?:CLUSTER_)?CLIENT_IP|TRUE_CLIENT_IP|
                             CF_|FASTLY_|X_ENVOY_|X_ORIGINAL_|X_AMZN_|TAILSCALE_)/x
      # nginx before 1.29.7 speaks HTTP/1.0 to upstream servers by default; no browser does.
      BROWSERS = %r{\AHTTP/(?:1\.1|[2-9](?:\.\d)?)\z}
      # Bytes.
      LONGEST_CREDENTIALS = 1024
      private_constant :ALLOWED, :ASKED, :OPEN, :SOCKETS, :HOST, :FORWARDED, :BROWSERS, :LONGEST_CREDENTIALS

      class << self
        # @param env [Hash] Rack's environment
        # @param configuration [Configuration, #authorize, #username, #password]
        # @param rails_env [String, nil] nil without Rails
        # @return [Verdict]
        def decide(env, configuration, rails_env)
          return authorized(env, configuration.authorize) if configuration.authorize

          credentials = [configuration.username, configuration.password]
          return unconfigured(env, rails_env) if credentials.all?(&:nil?)

          authenticated(env, *credentials.map(&:to_s))
        end

        private

        def authorized(env, authorize)
          authorize.call(::Rack::Request.new(env)) ? ALLOWED : Verdict.new(403, "authorize returned false")
        end

        def authenticated(env, username, password)
          return Verdict.new(403, "username is configured, but no password") if password.empty?
          return Verdict.new(403, "password is configured, but no username") if username.empty?

          given = env["HTTP_AUTHORIZATION"].to_s
          return ASKED if given.empty?

          matches?(given, username, password) ? ALLOWED : Verdict.new(401, "wrong username or password")
        end

        # Takes as long for a wrong name as for a wrong password.
        def matches?(header, username, password)
          scheme, encoded = header.byteslice(0, LONGEST_CREDENTIALS).split(" ", 2)
          return false unless scheme&.casecmp?("basic")

          name, word = encoded.to_s.unpack1("m0").split(":", 2)
          same?(name, username) & same?(word, password)
        rescue ArgumentError # not base64
          false
        end

        def same?(given, wanted)
          ::Rack::Utils.secure_compare(Digest::SHA256.digest(given.to_s.b), Digest::SHA256.digest(wanted.b))
        end

        def unconfigured(env, rails_env)
          sentence, about = objection(env, rails_env)
          return ALLOWED unless sentence

          Verdict.new(403, "#{sentence}; configure username and password (MEMSCOPE_USERNAME, MEMSCOPE_PASSWORD), or " \
                           "authorize", about)
        end

        def objection(env, rails_env)
          return "no access is configured" unless rails_env
          return ["no access is configured, and Rails.env is %s", rails_env.inspect] unless OPEN.include?(rails_env)

          proxy_objection(env) || peer_objection(*env.values_at("REMOTE_ADDR", "HTTP_HOST"))
        end

        # Puma before 6 has the request's version in HTTP_VERSION only.
        def proxy_objection(env)
          return "the request came over a Unix socket" if SOCKETS.any? { |key| unix_socket?(env[key]) }

          version = env.values_at("SERVER_PROTOCOL", "HTTP_VERSION").compact.grep_v(BROWSERS).first
          return ["the request came through a proxy, by %s", Request.excerpt(version)] if version

          header = env.keys.grep(FORWARDED).first
          ["the request came through a proxy (%s)", header] if header
        end

        def peer_objection(peer, host)
          return ["the peer %s is not loopback", Request.excerpt(peer)] unless loopback_address?(peer)

          ["the Host %s is not loopback", Request.excerpt(host)] unless loopback_host?(host)
        end

        def loopback_host?(authority)
          host = authority.to_s.b[HOST, "host"] or return false

          host.casecmp?("localhost") || loopback_address?(host)
        end

        def loopback_address?(address)
          given = IPAddr.new(address.to_s)
          (given.ipv4_mapped? ? given.native : given).loopback?
        rescue IPAddr::Error
          false
        end

        def unix_socket?(socket)
          defined?(::UNIXSocket) && socket.respond_to?(:to_io) && socket.to_io.is_a?(::UNIXSocket)
        end
      end
    end

    # Whether a POST comes from memscope's own pages. If the browser sent Sec-Fetch-Site (browsers do so to https and to
    # localhost), that header decides; otherwise Origin; otherwise (browsers too old for both, and programs) the form's
    # token, which must equal the token in the cookie. So the processes of a cluster need no shared secret.
    #
    # @api private
    module Forgery
      COOKIE = "memscope_token"
      FIELD = "token"
      TOKEN = /\A[A-Za-z0-9_-]{43}\z/
      COOKIES = /(?:\A|;)\s*#{COOKIE}=([A-Za-z0-9_-]{43})\s*(?=;|\z)/
      DEFAULT_PORTS = { "http" => ":80", "https" => ":443" }.freeze
      private_constant :COOKIE, :TOKEN, :COOKIES, :DEFAULT_PORTS

      class << self
        # @return [String] 256 random bits
        def token = SecureRandom.urlsafe_base64(32)

        # @param env [Hash] Rack's environment
        # @return [String, nil] the token in the request's cookie
        def cookie(env) = env["HTTP_COOKIE"].to_s.b[COOKIES, 1]

        # No script can read the cookie, and browsers send it only with requests from pages of the same site.
        #
        # @param request [Request]
        # @param token [String]
        # @return [Hash{String => String}] the header that sets the cookie; empty if the browser sent one
        def header(request, token)
          return {} if cookie(request.env)

          path = request.base.match?(%r{\A(?:/[\w.~-]+)+\z}) ? request.base : "/"
          { "set-cookie" => "#{COOKIE}=#{token}; path=#{path}; httponly; samesite=strict" \
                            "#{'; secure' if request.secure?}" }
        end

        # @param env [Hash] Rack's environment
        # @param token [String, nil] the token in the form
        # @return [Access::Verdict, nil] why the request is refused; nil if it is not
        def objection(env, token)
          site, origin = env.values_at("HTTP_SEC_FETCH_SITE", "HTTP_ORIGIN")
          if site
            refused("Sec-Fetch-Site is %s", Request.excerpt(site)) unless site == "same-origin"
          elsif origin
            refused("Origin %s", foreign(origin, env)) unless own?(origin, env)
          else
            token_objection(cookie(env), token.to_s)
          end
        end

        private

        # Does not compare schemes: they differ behind a proxy that terminates TLS.
        def own?(origin, env)
          scheme, authority = origin.downcase.split("://", 2)
          port = DEFAULT_PORTS[scheme]
          port && authority&.delete_suffix(port) == env["HTTP_HOST"].to_s.downcase.delete_suffix(port)
        end

        def token_objection(cookie, token)
          return refused("no Sec-Fetch-Site, no Origin and no cookie with a token") unless cookie

          same = TOKEN.match?(token) && ::Rack::Utils.secure_compare(cookie, token)
          refused("the form's token is not the cookie's") unless same
        end

        def foreign(origin, env) = "#{Request.excerpt(origin)} is not Host #{Request.excerpt(env['HTTP_HOST'])}"

        def refused(sentence, about = nil) = Access::Verdict.new(403, sentence, about)
      end
    end

    # Limits how often refusals are logged, so that strangers cannot fill the application's log: the first of each kind
    # at once, then at most one line a minute, with the number of refusals in between.
    #
    # @api private
    class LogThrottle
      # Seconds.
      INTERVAL = 60
      # Kinds that are counted separately; all further kinds count as one.
      MOST = 32
      private_constant :INTERVAL, :MOST

      # @param clock [#call] returns seconds
      def initialize(clock: Clock.method(:now))
        @clock = clock
        @mutex = Mutex.new
        @kinds = {}
      end

      # Counts one refusal.
      #
      # @param kind [Object] the kind of refusal, which must contain nothing from the request
      # @return [String, nil] what to append to the log line ("" or " (and 3 more ...)"); nil if nothing is to be logged
      def add(kind)
        now = @clock.call
        @mutex.synchronize do
          kind = :others if @kinds.size >= MOST && !@kinds.key?(kind)
          logged, left_out = @kinds[kind]
          due = logged.nil? || now - logged >= INTERVAL
          @kinds[kind] = due ? [now, 0] : [logged, left_out + 1]
          next unless due
          next "" if left_out.to_i.zero?

          " (and #{left_out} more for the same reason in the #{(now - logged).round} s before)"
        end
      end
    end
  end
end
