# frozen_string_literal: true

require "json"
require "net/http"
require "securerandom"
require "uri"

module Memscope
  module Tasks
    # An application that has mounted Memscope::Web, over HTTP. Of several processes behind one address, one answers.
    #
    # @api private
    class Mounted
      # What each page holds, and its reading.
      PAGES = { ledger: :Ledger, doctor: :Diagnosis, arenas: :Arenas, size_classes: :SizeClasses }.freeze
      EXAMPLE = "the address at which Memscope::Web is mounted, such as http://127.0.0.1:3000/memscope"
      JSON_TYPE = "application/json"
      # What browsers never send of themselves to another site, and Memscope::Web's forms need all the same.
      TOKEN = "memscope_token"
      # Seconds.
      TIMEOUTS = { open_timeout: 5, read_timeout: 60 }.freeze
      # Bytes of an answer.
      LONGEST = 64 * 1024 * 1024
      # Characters of what the other side says in its own words.
      LONGEST_SENTENCE = 300
      UNREACHABLE = [SystemCallError, SocketError, Timeout::Error, IOError, OpenSSL::SSL::SSLError, Net::ProtocolError,
                     Net::HTTPBadResponse, Net::HTTPHeaderSyntaxError, Zlib::Error].freeze
      private_constant :PAGES, :EXAMPLE, :JSON_TYPE, :TOKEN, :TIMEOUTS, :LONGEST, :LONGEST_SENTENCE, :UNREACHABLE

      # @param url [String] may hold a name and a password
      # @raise [Failure] unless it is one of HTTP
      def initialize(url)
        uri = URI.parse(url)
        raise URI::InvalidURIError unless uri.is_a?(URI::HTTP) && !uri.host.to_s.empty?

        @credentials = [uri.user, uri.password].compact.map do |part|
          URI.decode_www_form_component(part.gsub("+", "%2B"))
        end
        @base = uri.class.build(host: uri.host, port: uri.port, path: uri.path.chomp("/"))
      rescue URI::Error # its message may hold a password
        raise Failure, "URL: given what is no http:// or https:// address, allowed: #{EXAMPLE}"
      end

      # @param call [Symbol] one of PAGES
      # @return [Reading]
      # @raise [Failure]
      def read(call) = load([Memscope.const_get(PAGES.fetch(call))], ask(Net::HTTP::Get, call, JSON_TYPE))

      # @param levers [Array<String>]
      # @param dry_run [Boolean]
      # @return [Purge::Result, Purge::WorkerResults] the second of a cluster
      # @raise [Failure]
      def purge(levers, dry_run:)
        token = SecureRandom.urlsafe_base64(32)
        form = [["token", token], *(levers.empty? ? %w[all] : levers).map { |lever| ["lever", lever] }]
        form << %w[dry_run 1] if dry_run
        body = ask(Net::HTTP::Post, :purge, JSON_TYPE) do |request|
          request["Cookie"] = "#{TOKEN}=#{token}"
          request["Origin"] = "#{@base.scheme}://#{@base.host}:#{@base.port}"
          request.set_form_data(form)
        end
        load([Purge::Result, Purge::WorkerResults], body)
      end

      # @return [String]
      # @raise [Failure]
      def metrics = ask(Net::HTTP::Get, :metrics, "text/plain").force_encoding(Encoding::UTF_8)

      # @return [String] without a password
      def to_s = @base.to_s

      private

      def ask(verb, page, type)
        uri = URI.parse("#{@base}/#{page}")
        # Given a URI, Ruby 3.1's net/http names the host without the brackets of IPv6.
        request = verb.new(uri.request_uri, "Accept" => type)
        request.basic_auth(@credentials.first, @credentials[1].to_s) if @credentials.any?
        yield request if block_given?
        response = Net::HTTP.start(uri.hostname, uri.port, use_ssl: uri.scheme == "https", **TIMEOUTS) do |http|
          http.request(request) { |incoming| take(incoming) }
        end
        accept(response, type)
      rescue *UNREACHABLE => e
        failed("cannot be asked: #{e.message}")
      end

      # Gives up where it is too long. Of what has no body there is none to read.
      def take(response)
        bytes = 0
        body = +""
        response.read_body do |part|
          bytes += part.bytesize
          failed("answered more than #{LONGEST} bytes") if bytes > LONGEST
          body << part
        end
        response.body = body
      end

      def accept(response, type)
        given = response.content_type
        return response.body if response.is_a?(Net::HTTPOK) && given == type

        failed(objection(response, given, type))
      end

      def objection(response, given, type)
        case response
        when Net::HTTPOK then "answered #{given || 'nothing that has a type'}, not #{type}; allowed: #{EXAMPLE}"
        when Net::HTTPRedirection then "sends on to #{response['location'].inspect}; allowed: an address that answers"
        when Net::HTTPUnauthorized then "wants #{'another ' if @credentials.any?}name and password: " \
                                        "URL=#{@base.scheme}://NAME:PASSWORD@#{@base.host}…"
        when Net::HTTPForbidden then "refuses this (403); its log says why#{words(response)}"
        when Net::HTTPNotFound then "has no such page (404); allowed: #{EXAMPLE}"
        else "answered #{response.code}#{words(response)}"
        end
      end

      # Its own words, where it has said them as memscope does.
      def words(response)
        said = case response.content_type
               when JSON_TYPE then JSON.parse(response.body)["error"]
               when "text/plain" then response.body.lines.first&.chomp
               end
        said.is_a?(String) ? ": #{said[0, LONGEST_SENTENCE].scrub}" : ""
      rescue JSON::ParserError, TypeError, NoMethodError
        ""
      end

      def load(types, body)
        given = JSON.parse(body)
        kind = given["kind"] if given.is_a?(Hash)
        (types.find { |type| type.kind == kind } || types.first).from_h(given)
      rescue JSON::ParserError
        failed("answered what is no JSON; allowed: #{EXAMPLE}")
      rescue ArgumentError => e
        failed("answered what is not memscope's: #{e.message[0, LONGEST_SENTENCE]}; allowed: #{EXAMPLE}")
      end

      def failed(why) = raise(Failure, "URL: #{@base}: #{why}")
    end
  end
end
