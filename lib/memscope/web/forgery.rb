# frozen_string_literal: true

require "securerandom"

module Memscope
  module Web
    # Whether a POST comes from memscope's own page. Three things must hold, for each alone has gaps: browsers send
    # Sec-Fetch-Site to trustworthy origins only (https, localhost), older ones no Origin, and a cookie can be planted
    # from a sibling of the host.
    #
    # 1. Sec-Fetch-Site is same-origin, or absent.
    # 2. Origin names the Host, or is absent. Where both are absent no browser made the request: then it must bring an
    #    Authorization header, which no browser adds by itself to a request across sites without Sec-Fetch-Site or
    #    Origin.
    # 3. The form's token is the cookie's. Any process of a cluster can tell that, without a secret in common.
    #
    # @api private
    module Forgery
      COOKIE = "memscope_token"
      FIELD = "token"
      TOKEN = /\A[A-Za-z0-9_-]{43}\z/
      COOKIES = /(?:\A|;)\s*#{COOKIE}=([A-Za-z0-9_-]{43})\s*(?=;|\z)/
      DEFAULT_PORTS = { "http" => ":80", "https" => ":443" }.freeze
      private_constant :TOKEN, :COOKIES, :DEFAULT_PORTS

      class << self
        # @return [String] 256 bits at random
        def token = SecureRandom.urlsafe_base64(32)

        # @param env [Hash] of Rack
        # @return [String, nil] the token of its cookie
        def cookie(env) = env["HTTP_COOKIE"].to_s.b[COOKIES, 1]

        # @param env [Hash] of Rack
        # @param token [String, nil] the form's
        # @return [Access::Verdict, nil] why it is refused
        def objection(env, token) = origin_objection(env) || token_objection(cookie(env), token)

        private

        def origin_objection(env)
          site, origin = env.values_at("HTTP_SEC_FETCH_SITE", "HTTP_ORIGIN")
          return refused("Sec-Fetch-Site is %s", shown(site)) if site && site != "same-origin"
          return (refused("Origin %s", foreign(origin, env)) unless own?(origin, env)) if origin

          refused("no Sec-Fetch-Site, no Origin and no Authorization") unless site || env["HTTP_AUTHORIZATION"]
        end

        # The scheme may differ: a proxy may have ended TLS.
        def own?(origin, env)
          scheme, authority = origin.downcase.split("://", 2)
          port = DEFAULT_PORTS[scheme]
          port && authority.delete_suffix(port) == env["HTTP_HOST"].to_s.downcase.delete_suffix(port)
        end

        def token_objection(cookie, token)
          return refused("no cookie with a token") unless cookie

          given = token.to_s
          same = TOKEN.match?(given) && ::Rack::Utils.secure_compare(cookie, given)
          refused("the form's token is not the cookie's") unless same
        end

        def foreign(origin, env) = "#{shown(origin)} is not Host #{shown(env['HTTP_HOST'])}"

        def refused(sentence, about = nil) = Access::Verdict.new(403, sentence, about)

        def shown(text) = text.to_s[0, 60].inspect
      end
    end
  end
end
