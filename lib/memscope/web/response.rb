# frozen_string_literal: true

require "json"
require "rack"
require "time"

module Memscope
  module Web
    # The error response to a request that was allowed in: its status, and a sentence for the client.
    #
    # @api private
    class HttpError < StandardError
      # @param name [String] the parameter
      # @param given [Object]
      # @param allowed [String]
      # @return [HttpError]
      def self.parameter(name, given, allowed)
        new(400, "#{name}: given #{given.to_s[0, 20].inspect}, allowed: #{allowed}.")
      end

      # @return [Integer]
      attr_reader :status
      # @return [Hash{String => String}]
      attr_reader :headers

      def initialize(status, sentence, headers = {})
        @status = status
        @headers = headers
        super(sentence)
      end

      # @return [String] "Not found"
      def title = ::Rack::Utils::HTTP_STATUS_CODES.fetch(status).gsub(/(?<= )[A-Z]/, &:downcase)

      # @return [Symbol] the template in views/
      def template = :error
    end

    # A body that is read from an open file, whose name may already have been removed.
    #
    # @api private
    class Download
      # Bytes read at a time.
      PART = 1 << 16
      private_constant :PART

      # @param file [File] open for reading; closed by the server, through `close`
      def initialize(file) = @file = file

      # @yieldparam part [String]
      def each
        while (part = @file.read(PART))
          yield part
        end
      end

      # @return [void]
      def close = @file.close
    end

    # Rack responses, with the headers that all of them carry.
    #
    # The referrer policy is same-origin: under no-referrer, browsers would send even the pages' own forms with
    # "Origin: null".
    #
    # @api private
    module Response
      POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " \
               "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
      HEADERS = { "content-security-policy" => POLICY, "x-content-type-options" => "nosniff",
                  "referrer-policy" => "same-origin", "cross-origin-resource-policy" => "same-origin",
                  "cache-control" => "no-store", "vary" => "Accept, Cookie" }.freeze
      TYPES = { html: "text/html; charset=utf-8", json: "application/json; charset=utf-8",
                text: "text/plain; charset=utf-8" }.freeze
      private_constant :POLICY, :HEADERS, :TYPES

      module_function

      # @param format [Symbol, String] :html, :json, :text, or a media type
      # @return [Array(Integer, Hash, Array<String>)]
      def of(status, format, body, headers = {})
        [status, { **HEADERS, "content-type" => TYPES.fetch(format, format), "content-length" => body.bytesize.to_s,
                              **headers }, [body]]
      end

      # Proxies and Rack::ETag would buffer the whole body: X-Accel-Buffering tells nginx not to, and Rack::ETag (of
      # Rack 2) skips responses with Last-Modified.
      #
      # @yieldparam parts [Enumerator::Yielder] sends what is appended to it
      # @return [Array(Integer, Hash, Enumerator)] HTML that is sent while it is generated
      def parts(headers = {}, &)
        at_once = { "x-accel-buffering" => "no", "last-modified" => Time.now.httpdate }
        [200, { **HEADERS, "content-type" => TYPES[:html], **at_once, **headers }, Enumerator.new(&)]
      end

      # @param file [File] open for reading
      # @param name [String] of the file that the browser saves
      # @return [Array(Integer, Hash, Download)]
      def download(file, name)
        [200, { **HEADERS, "content-type" => "application/octet-stream", "content-length" => file.size.to_s,
                           "content-disposition" => %(attachment; filename="#{name}") }, Download.new(file)]
      end

      # @return [Array(Integer, Hash, Array<String>)] JSON if `format` is :json, else text
      def sentence(status, format, sentence, headers = {})
        return of(status, :text, "#{sentence}\n", headers) unless format == :json

        of(status, :json, "#{JSON.generate(error: sentence)}\n", headers)
      end

      # @param verbs [Array<String>]
      # @return [Array(Integer, Hash, Array<String>)] names the verbs that a path allows
      def options(verbs) = [204, { **HEADERS, "allow" => verbs.join(", ") }, []]
    end
  end
end
