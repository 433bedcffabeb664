# frozen_string_literal: true

module Memscope
  module Web
    # The error response to a request that was allowed in: its status, and a sentence for the client.
    # @api private
    class HttpError < StandardError
      WORDS = Words.beside(__FILE__)

      def self.of(status, name, headers: {}, **figures) = new(status, WORDS.fill(name, figures), headers)

      def self.parameter(name, given, allowed)
        new(400, "#{name}: given #{given.to_s[0, 20].inspect}, allowed: #{allowed}.")
      end

      def self.choose(name, given, allowed)
        allowed.find { |one| one.to_s == given.to_s } || raise(parameter(name, given, allowed.join(", ")))
      end

      # @return [HttpError] without the name of that call
      def self.invalid(error) = new(400, "#{error.as}.")

      attr_reader :status, :headers

      def initialize(status, sentence, headers = {})
        @status = status
        @headers = headers
        super(sentence)
      end

      # @return [String] "Not found"
      def title = ::Rack::Utils::HTTP_STATUS_CODES.fetch(status).gsub(/(?<= )[A-Z]/, &:downcase)

      def template = :error
    end

    # A request: its path, format and parameters. All input is untrusted and bounded. Malformed input raises HttpError.
    # @api private
    class Request
      FORMATS = { "html" => :html, "json" => :json, "txt" => :text }.freeze
      # Media types by format, in order of preference.
      TYPES = { html: "text/html", json: "application/json", text: "text/plain" }.freeze
      FORM = "application/x-www-form-urlencoded"
      # Bytes.
      MAX_PATH = 256
      MAX_QUERY = 1024
      MAX_FORM = 4096
      MAX_ACCEPT = 1024

      # @return [String] its beginning, quoted, for a log line
      def self.excerpt(text) = text.to_s[0, 60].inspect

      # Rack's environment; where the application is mounted: "/memscope", or ""; the path below `base`, without the
      # extension that names a format; :html, :json or :text; "GET".
      attr_reader :env, :base, :path, :format, :verb

      def initialize(env)
        @env = env
        @verb = env["REQUEST_METHOD"].to_s
        @base = env["SCRIPT_NAME"].to_s.chomp("/")
        @path, extension = split(env["PATH_INFO"].to_s.b)
        @format = FORMATS.fetch(extension) { accepted(env["HTTP_ACCEPT"].to_s.b.byteslice(0, MAX_ACCEPT)) }
      end

      def query
        text = env["QUERY_STRING"].to_s
        raise HttpError.of(414, :query_too_long) if text.bytesize > MAX_QUERY

        @query ||= decoded(text, "query")
      end

      def form
        type = env["CONTENT_TYPE"].to_s[/\A[^;,\s]*/].to_s
        raise HttpError.of(415, :no_form, type: FORM) unless type.empty? || type.casecmp?(FORM)

        decoded(body, "form")
      end

      def link(path, query = {})
        place = path == "/" && !@base.empty? ? @base : "#{@base}#{path}"
        query.empty? ? place : "#{place}?#{URI.encode_www_form(query)}"
      end

      private

      def split(path)
        return [nil, nil] if path.bytesize > MAX_PATH || !path.match?(%r{\A[A-Za-z0-9_./]*\z})

        name, extension = path.match(%r{\A(/[a-z_]+)\.(html|json|txt)\z})&.captures
        [name || (path.empty? ? "/" : path), extension]
      end

      # HTML without an Accept header, and where it allows none of the formats.
      def accepted(header)
        TYPES.key(::Rack::Utils.best_q_match(header.split(",").grep(/[^\s;]/).join(","), TYPES.values)) || :html
      end

      def body
        declared = env["CONTENT_LENGTH"].to_s
        raise HttpError.of(400, :no_length) unless declared.match?(/\A\d{0,18}\z/)

        # If a middleware has already read the form, as Rails' Rack::MethodOverride does, the env keeps the form's text.
        text = env["rack.request.form_vars"]
        text ||= env["rack.input"]&.read(MAX_FORM + 1) unless declared.to_i > MAX_FORM
        raise HttpError.of(413, :form_too_long) if [declared.to_i, text.to_s.bytesize].max > MAX_FORM

        text.to_s
      end

      def decoded(text, what)
        fields = ::Rack::Utils.parse_query(text.b).transform_values { |values| [*values] }
        valid = fields.flatten(2).all? { |part| part.valid_encoding? && !part.include?("\0") }
        valid ? fields : raise(ArgumentError)
      rescue ArgumentError, EncodingError # also Rack's errors
        raise HttpError.of(400, :not_decoded, what: what)
      end
    end
  end
end
