# frozen_string_literal: true

require_relative "../value/reading"

module Memscope
  class Profile < Reading
    # The formats that a profile can be written in, by the names that the command line takes.
    #
    # @api private
    module Formats
      autoload :Pprof, File.join(__dir__, "formats/pprof.rb")
      autoload :Speedscope, File.join(__dir__, "formats/speedscope.rb")

      # The method that writes each format.
      ALL = { text: :to_s, json: :to_json, speedscope: :to_speedscope, pprof: :to_pprof, html: :to_html }.freeze
      # Formats whose text does not end in a newline.
      LINE = %i[json speedscope].freeze
      private_constant :LINE

      module_function

      # @param profile [Profile]
      # @param name [Symbol] a key of ALL
      # @param options [Hash{Symbol => Object}] for :text only: those of Profile#to_s
      # @return [String]
      def write(profile, name, **options)
        return profile.to_s(**options) if name == :text

        text = profile.public_send(ALL.fetch(name))
        LINE.include?(name) ? "#{text}\n" : text
      end
    end
  end
end
