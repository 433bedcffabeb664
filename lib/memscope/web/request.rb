# frozen_string_literal: true

require "uri"

module Memscope
  module Web
    # A request: its path, format and parameters. All input is untrusted and bounded; malformed input raises HttpError.
    #
    # @api private
    class Request
      # Formats by extension.
      FORMATS = { "html" => :html, "json" => :json, "txt" => :text }.freeze
      # Media types by format, in order of preference.
      TYPES = { html: "text/html", json: "application/json", text: "text/plain" }.freeze
      FORM = "application/x-www-form-urlencoded"
      # Bytes.
      LONGEST_PATH = 256
      LONGEST_QUERY = 1024
      LONGEST_FORM = 4096
      LONGEST_ACCEPT = 1024
      private_constant :FORMATS, :TYPES, :FORM, :LONGEST_PATH, :LONGEST_QUERY, :LONGEST_FORM, :LONGEST_ACCEPT

      # @param text [String, nil] from a header
      # @return [String] its beginning, quoted, for a log line
      def self.excerpt(text) = text.to_s[0, 60].inspect

      # @return [Hash] Rack's environment
      attr_reader :env
      # @return [String] where the application is mounted: "/memscope", or ""
      attr_reader :base
      # @return [String] the path below `base`, without the extension that names a format
      attr_reader :path
      # @return [Symbol] :html, :json or :text
      attr_reader :format

      # @param env [Hash] Rack's environment
      def initialize(env)
        @env = env
        @base = env["SCRIPT_NAME"].to_s.chomp("/")
        @path, extension = split(env["PATH_INFO"].to_s.b)
        @format = FORMATS.fetch(extension) { accepted(env["HTTP_ACCEPT"].to_s.b.byteslice(0, LONGEST_ACCEPT)) }
      end

      # @return [String] "GET"
      def verb = env["REQUEST_METHOD"].to_s

      # @return [Boolean]
      def head? = verb == "HEAD"

      # @return [Boolean]
      def secure? = ::Rack::Request.new(env).ssl?

      # @return [Hash{String => Array<String>}] the query's parameters
      # @raise [HttpError]
      def query
        text = env["QUERY_STRING"].to_s
        raise HttpError.new(414, "The query is too long.") if text.bytesize > LONGEST_QUERY

        decoded(text, "query")
      end

      # @return [Hash{String => Array<String>}] the fields of the form in the body
      # @raise [HttpError]
      def form
        type = env["CONTENT_TYPE"].to_s[/\A[^;,\s]*/].to_s
        raise HttpError.new(415, "Send a form: #{FORM}.") unless type.empty? || type.casecmp?(FORM)

        decoded(body, "form")
      end

      private

      def split(path)
        return [nil, nil] if path.bytesize > LONGEST_PATH || !path.match?(%r{\A[A-Za-z0-9_./]*\z})

        name, extension = path.match(%r{\A(/[a-z_]+)\.(html|json|txt)\z})&.captures
        [name || (path.empty? ? "/" : path), extension]
      end

      # The format with the highest quality value (if several have it, the first in TYPES); HTML without an Accept
      # header.
      def accepted(header)
        ranges = header.split(",").to_h { |range| ranged(range) }
        return :html if ranges.empty?

        TYPES.max_by.with_index { |(_format, type), index| [quality(type, ranges), -index] }.first
      end

      def ranged(range)
        type, *parameters = range.split(";").map(&:strip)
        quality = parameters.find { |text| text.start_with?("q=") }
        [type.to_s.downcase, quality ? quality.delete_prefix("q=").to_f : 1.0]
      end

      def quality(type, ranges) = ranges.values_at(type, type.sub(%r{/.*}, "/*"), "*/*").compact.first || 0.0

      def body
        declared = env["CONTENT_LENGTH"].to_s
        raise HttpError.new(400, "The length of the form is not a number.") unless declared.match?(/\A\d{0,18}\z/)

        # If a middleware has already read the form, as Rails' Rack::MethodOverride does, the env keeps the form's text.
        text = env["rack.request.form_vars"]
        text ||= env["rack.input"]&.read(LONGEST_FORM + 1) unless declared.to_i > LONGEST_FORM
        raise HttpError.new(413, "The form is too long.") if [declared.to_i, text.to_s.bytesize].max > LONGEST_FORM

        text.to_s
      end

      def decoded(text, what)
        pairs = URI.decode_www_form(text.dup.force_encoding(Encoding::UTF_8))
        raise ArgumentError if pairs.flatten.any? { |part| part.include?("\0") }

        pairs.group_by(&:first).transform_values { |same| same.map(&:last) }
      rescue ArgumentError, Encoding::CompatibilityError
        raise HttpError.new(400, "The #{what} cannot be decoded.")
      end
    end
  end
end
