# frozen_string_literal: true

require "cgi/escape"
require "erb"

module Memscope
  module Web
    # HTML: text that is not escaped again.
    #
    # @api private
    class Markup < String
      # @return [Markup] itself; String's would give a String
      def to_s = self

      # @param value [Object]
      # @return [Markup] it as text of a page or of an attribute
      def self.of(value) = value.is_a?(self) ? value : new(CGI.escapeHTML(value.to_s))

      # @param parts [Array<Object>] each escaped unless it is HTML
      # @return [Markup]
      def self.joined(parts, separator = "") = new(parts.map { |part| of(part) }.join(separator))
    end

    # ERB whose <%= %> escapes.
    #
    # @api private
    class Template < ERB
      # @param path [String]
      # @return [Template]
      def self.load(path)
        template = new(File.read(path, encoding: Encoding::UTF_8), trim_mode: "-")
        template.filename = path
        template
      end

      # As a method, in the scope of whoever evaluates it; ERB's own def_method would have ERB's constants.
      #
      # @param signature [String]
      # @return [String] Ruby
      def method_source(signature) = src.sub(/^(?!#|$)/) { "def #{signature}\n" }.concat("\nend\n")

      # ERB's way to say what the compiled template does.
      def set_eoutvar(compiler, eoutvar = "_erbout")
        super
        compiler.insert_cmd = "#{eoutvar}.<< ::Memscope::Web::Markup.of"
      end
    end
  end
end
