# frozen_string_literal: true

module Memscope
  module Web
    # Rack responses, with the headers that all of them carry.
    #
    # Forms are sent with their Origin only where the referrer policy lets a page of the same origin have it, hence
    # same-origin and not no-referrer.
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

      # @param sentence [String] what to tell
      # @return [Array(Integer, Hash, Array<String>)] as JSON where that was asked for, else as text
      def sentence(status, format, sentence, headers = {})
        return of(status, :text, "#{sentence}\n", headers) unless format == :json

        of(status, :json, "#{JSON.generate(error: sentence)}\n", headers)
      end

      # @param verbs [Array<String>]
      # @return [Array(Integer, Hash, Array<String>)] what may be done here
      def options(verbs) = [204, { **HEADERS, "allow" => verbs.join(", ") }, []]

      # @return [Array(Integer, Hash, Array<String>)] without its body
      def headless(response) = [*response.first(2), []]
    end
  end
end
