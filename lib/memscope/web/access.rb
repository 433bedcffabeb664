# frozen_string_literal: true

require "digest"
require "ipaddr"
require "rack/auth/basic"

module Memscope
  module Web
    # Who may use the pages.
    #
    # If `authorize` is configured, it alone decides. Otherwise `username` and `password` do. If none of these is
    # configured, the pages are closed, except that under Rails, in development and test, they are open to a browser on
    # the same machine: peer and Host must be loopback (under DNS rebinding, the Host is the attacker's), and nothing
    # may hint at a proxy, since the client behind a proxy is unknown.
    # @api private
    module Access
      # Why a request is refused: the status of the response, and a sentence for the log that may contain "%s", which
      # `reason` replaces with `about`. Without a sentence there is nothing to log: a browser sends credentials only
      # after a challenge.
      Refusal = Struct.new(:status, :sentence, :about) do
        def reason = about ? format(sentence, about) : sentence
      end

      WORDS = Words.beside(__FILE__)
      # The values of Rails.env under which the pages may be open without authorization.
      OPEN = %w[development test].freeze
      # Keys of the client's socket in Rack's environment: servers report the peer of a Unix socket as 127.0.0.1.
      SOCKETS = %w[puma.socket unicorn.socket].freeze
      HOST = /\A(?:\[(?<host>[0-9a-f:.]+)\]|(?<host>[a-z0-9.-]+))(?::\d{1,5})?\z/i
      # Headers that proxies, load balancers and tunnels add.
      FORWARDED = /\AHTTP_(?:X_FORWARDED|FORWARDED|VIA|X_REAL_IP|(?:X_)?(?:CLUSTER_)?CLIENT_IP|TRUE_CLIENT_IP|
                             CF_|FASTLY_|X_ENVOY_|X_ORIGINAL_|X_AMZN_|TAILSCALE_)/x
      # nginx before 1.29.7 speaks HTTP/1.0 to upstream servers by default. No browser does.
      BROWSERS = %r{\AHTTP/(?:1\.1|[2-9](?:\.\d)?)\z}
      DEFAULT_PORTS = { "http" => ":80", "https" => ":443" }.freeze

      class << self
        # @param name [Symbol] of a text in access.words
        # @param about [String, nil] the text that replaces its "%s"
        # @return [Refusal]
        def refuse(status, name, about = nil) = Refusal.new(status, WORDS[name], about)

        # @param env [Hash] Rack's environment
        # @param configuration [Configuration, #authorize, #username, #password]
        # @param rails_env [String, nil] nil without Rails
        # @return [Refusal, nil]
        def refusal(env, configuration, rails_env)
          credentials = [configuration.username, configuration.password]
          if configuration.authorize
            allowed = configuration.authorize.call(::Rack::Request.new(env))
            refuse(403, :unauthorized) unless allowed
          elsif credentials.all?(&:nil?)
            unconfigured(env, rails_env)
          else
            unauthenticated(env, *credentials.map(&:to_s))
          end
        end

        # Refuses a POST that is not from memscope's own pages. Browsers report this in Sec-Fetch-Site if the page
        # is on https or localhost, and otherwise in Origin. A program has to send one of them.
        #
        # @param env [Hash] Rack's environment
        # @return [Refusal, nil]
        def forgery(env)
          site, origin = env.values_at("HTTP_SEC_FETCH_SITE", "HTTP_ORIGIN")
          if site
            refuse(403, :fetch_site, Request.excerpt(site)) unless site == "same-origin"
          elsif origin.nil?
            refuse(403, :no_origin)
          elsif !own?(origin, env["HTTP_HOST"])
            host = Request.excerpt(env["HTTP_HOST"])
            Refusal.new(403, WORDS[:origin], WORDS.fill(:not_host, origin: Request.excerpt(origin), host: host))
          end
        end

        private

        def unauthenticated(env, username, password)
          return refuse(403, :no_password) if password.empty?
          return refuse(403, :no_username) if username.empty?

          given = ::Rack::Auth::Basic::Request.new(env)
          return Refusal.new(401) unless given.provided?

          name, word = given.credentials if given.basic?
          # Takes as long for a wrong name as for a wrong password, whatever their lengths.
          same = [[name, username], [word, password]].map do |texts|
            ::Rack::Utils.secure_compare(*texts.map { |text| Digest::SHA256.digest(text.to_s.b) })
          end
          refuse(401, :wrong) unless same.all?
        end

        def unconfigured(env, rails_env)
          name, about = objection(env, rails_env)
          Refusal.new(403, WORDS[name] + WORDS[:configure], about) if name
        end

        def objection(env, rails_env)
          return :unconfigured unless rails_env
          return [:not_in_this_environment, rails_env.inspect] unless OPEN.include?(rails_env)

          proxy_objection(env) || peer_objection(*env.values_at("REMOTE_ADDR", "HTTP_HOST"))
        end

        # Puma before 6 has the request's version in HTTP_VERSION only.
        def proxy_objection(env)
          return :unix_socket if SOCKETS.any? { |key| unix_socket?(env[key]) }

          version = env.values_at("SERVER_PROTOCOL", "HTTP_VERSION").compact.grep_v(BROWSERS).first
          return [:old_protocol, Request.excerpt(version)] if version

          header = env.keys.grep(FORWARDED).first
          [:proxy_header, header] if header
        end

        def peer_objection(peer, host)
          return [:peer, Request.excerpt(peer)] unless loopback_address?(peer)

          name = host.to_s.b[HOST, "host"].to_s
          [:host, Request.excerpt(host)] unless name.casecmp?("localhost") || loopback_address?(name)
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

        # Does not compare schemes: they differ behind a proxy that terminates TLS.
        def own?(origin, host)
          scheme, authority = origin.downcase.split("://", 2)
          port = DEFAULT_PORTS[scheme]
          port && authority&.delete_suffix(port) == host.to_s.downcase.delete_suffix(port)
        end
      end
    end
  end
end
