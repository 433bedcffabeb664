# frozen_string_literal: true

require "digest"
require "ipaddr"

module Memscope
  module Web
    # Who gets in. A function of the request's env, the configuration and the Deployment.
    #
    # `authorize` decides alone where it is configured, else username and password do. Where nothing is configured, the
    # pages are open to a person on the machine itself, in development and tests: the peer and the Host header must
    # both be loopback, for a name that an attacker's DNS maps to 127.0.0.1 sends that name as Host; and no proxy may
    # stand between, for its peer is not ours.
    #
    # @api private
    module Access
      # What was decided. A refusal has the status of the response, and a reason for the log: a sentence, and what of
      # the request it is about, where it holds "%s".
      Verdict = Struct.new(:status, :sentence, :about) do
        # @return [Boolean]
        def allowed? = status.nil?

        # @return [String]
        def reason = about ? format(sentence, about) : sentence
      end

      ALLOWED = Verdict.new.freeze
      LOOPBACK = [IPAddr.new("127.0.0.0/8"), IPAddr.new("::1")].freeze
      # Peers of these are not known: the servers call them 127.0.0.1.
      SOCKETS = %w[puma.socket unicorn.socket].freeze
      HOST = /\A(?:\[(?<host>[0-9a-f:.]+)\]|(?<host>[a-z0-9.-]+))(?::\d{1,5})?\z/i
      FORWARDED = /\AHTTP_(?:X_FORWARDED|FORWARDED|X_REAL_IP|VIA)/
      # Bytes.
      LONGEST_CREDENTIALS = 1024
      OPENING = "configure username and password (MEMSCOPE_USERNAME, MEMSCOPE_PASSWORD), or authorize"
      private_constant :ALLOWED, :LOOPBACK, :SOCKETS, :HOST, :FORWARDED, :LONGEST_CREDENTIALS, :OPENING

      class << self
        # @param env [Hash] of Rack
        # @param configuration [Configuration, #authorize, #username, #password]
        # @param deployment [Deployment]
        # @return [Verdict]
        def decide(env, configuration, deployment)
          return authorized(env, configuration.authorize) if configuration.authorize

          username = configuration.username
          password = configuration.password
          return opened(env, deployment) if username.nil? && password.nil?

          authenticated(env, username.to_s, password.to_s)
        end

        # @param authority [String, nil] "localhost:3000", "[::1]"
        # @return [Boolean]
        def loopback_host?(authority)
          host = authority.to_s.b[HOST, "host"] or return false

          host.casecmp?("localhost") || loopback_address?(host)
        end

        # @param address [String, nil]
        # @return [Boolean]
        def loopback_address?(address)
          given = IPAddr.new(address.to_s)
          given = given.native if given.ipv4_mapped?
          LOOPBACK.any? { |range| range.include?(given) }
        rescue IPAddr::Error
          false
        end

        private

        def authorized(env, authorize)
          authorize.call(::Rack::Request.new(env)) ? ALLOWED : refused(403, "authorize said no")
        end

        def authenticated(env, username, password)
          return refused(403, "username is configured, but no password") if password.empty?
          return refused(403, "password is configured, but no username") if username.empty?

          given = env["HTTP_AUTHORIZATION"].to_s
          return refused(401, "no credentials were given") if given.empty?

          matches?(given, username, password) ? ALLOWED : refused(401, "wrong username or password")
        end

        # Takes as long for a wrong name as for a wrong password.
        def matches?(header, username, password)
          scheme, encoded = header.byteslice(0, LONGEST_CREDENTIALS).split(" ", 2)
          return false unless scheme&.casecmp?("basic")

          name, word = encoded.to_s.unpack1("m0").split(":", 2)
          same?(name, username) & same?(word, password)
        rescue ArgumentError # no base64
          false
        end

        def same?(given, wanted)
          ::Rack::Utils.secure_compare(Digest::SHA256.digest(given.to_s.b), Digest::SHA256.digest(wanted.b))
        end

        def opened(env, deployment)
          sentence, about = objection(env, deployment)
          sentence ? refused(403, "#{sentence}; #{OPENING}", about) : ALLOWED
        end

        def objection(env, deployment)
          return ["%s", deployment.explanation] unless deployment.open
          return "the request came over a Unix socket" if SOCKETS.any? { |key| unix_socket?(env[key]) }

          forwarded = env.keys.grep(FORWARDED).first
          return ["the request came through a proxy (%s)", forwarded] if forwarded

          peer, host = env.values_at("REMOTE_ADDR", "HTTP_HOST")
          return ["the peer %s is not loopback", shown(peer)] unless loopback_address?(peer)

          ["the Host %s is not loopback", shown(host)] unless loopback_host?(host)
        end

        def unix_socket?(socket)
          defined?(::UNIXSocket) && socket.respond_to?(:to_io) && socket.to_io.is_a?(::UNIXSocket)
        end

        def shown(text) = text.to_s[0, 60].inspect

        def refused(status, sentence, about = nil) = Verdict.new(status, sentence, about)
      end
    end
  end
end
