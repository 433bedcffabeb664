# frozen_string_literal: true

module Memscope
  module Web
    # Who may use the pages: nobody unless the application configures who. If `authorize` is configured, it alone
    # decides; otherwise `username` and `password` do.
    # @api private
    module Access
      # Why a request is refused: the status of the response, and a sentence for the log that may contain "%s", which
      # `reason` replaces with `about`. Without a sentence there is nothing to log: a browser sends credentials only
      # after a challenge.
      Refusal = Struct.new(:status, :sentence, :about) do
        def reason = about ? format(sentence, about) : sentence
      end

      WORDS = Words.beside(__FILE__)
      DEFAULT_PORTS = { "http" => ":80", "https" => ":443" }.freeze

      class << self
        def refuse(status, name, about = nil) = Refusal.new(status, WORDS[name], about)

        def refusal(env, configuration)
          credentials = [configuration.username, configuration.password]
          if (authorize = configuration.authorize)
            refuse(403, :unauthorized) unless authorize.call(::Rack::Request.new(env))
          elsif credentials.all?(&:nil?)
            refuse(403, :unconfigured)
          else
            unauthenticated(env, *credentials.map(&:to_s))
          end
        end

        # Refuses a POST that is not from memscope's own pages. Browsers report this in Sec-Fetch-Site if the page
        # is on https or localhost, and otherwise in Origin. A program has to send one of them.
        def forgery(env)
          site, origin = env.values_at("HTTP_SEC_FETCH_SITE", "HTTP_ORIGIN")
          if site
            refuse(403, :fetch_site, Request.excerpt(site)) unless site == "same-origin"
          elsif origin.nil?
            refuse(403, :no_origin)
          elsif !own?(origin, env["HTTP_HOST"])
            host = Request.excerpt(env["HTTP_HOST"])
            refuse(403, :origin, WORDS.fill(:not_host, origin: Request.excerpt(origin), host: host))
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
