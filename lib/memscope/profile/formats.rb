# frozen_string_literal: true

require_relative "../profile"

module Memscope
  class Profile < Reading
    # The formats that a profile can be written in, by the names that the surfaces take.
    #
    # @api private
    module Formats
      # By name: the method that writes it.
      ALL = { text: :to_s, json: :to_json, collapsed: :to_collapsed, speedscope: :to_speedscope, pprof: :to_pprof,
              firefox: :to_firefox, html: :to_html }.freeze
      # That end without a line's end of their own.
      LINE = %i[json speedscope firefox].freeze
      private_constant :LINE

      module_function

      # @param profile [Profile, Profile::Difference]
      # @param name [Symbol] of ALL
      # @return [String]
      # @raise [LoadError] where pprof's gem is missing, saying what to add
      def write(profile, name)
        text = profile.public_send(ALL.fetch(name))
        LINE.include?(name) ? "#{text}\n" : text
      end

      # The profiles of several processes as one.
      #
      # @param parts [Array<Array(Profile, Hash{String => String})>] or Differences, at least one: each with the labels
      #   that all of its samples get
      # @param comments [Array<String>]
      # @return [String] as Sampled#to_pprof
      # @raise [LoadError] likewise
      def merged_pprof(parts, comments: []) = Pprof.new(parts, comments: comments).to_s
    end
  end
end
