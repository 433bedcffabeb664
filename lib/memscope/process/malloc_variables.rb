# frozen_string_literal: true

module Memscope
  # The settings that mimalloc and tcmalloc take from environment variables. Neither reports them by name.
  # @api private
  module MallocVariables
    # By allocator: variables of settings, and the settings' names in capitals.
    NAMES = { mimalloc: /\A(?:MIMALLOC|mimalloc)_(.+)/m, tcmalloc: /\ATCMALLOC_(.+)/m }.freeze
    # Words that mimalloc takes for yes and no (src/options.c, 2.0.9 to 3.0).
    WORDS = { "" => 1, "TRUE" => 1, "YES" => 1, "ON" => 1, "FALSE" => 0, "NO" => 0, "OFF" => 0 }.freeze
    # Its other values: a decimal number, which may be a size.
    NUMBER = /\A\s*[+-]?\d+(?<unit>[KMG](?:I?B)?)?\z/i

    class << self
      # @param allocator [Symbol] a key of NAMES
      # @return [Array<Hash>] the settings that the variables (Native.allocator_inputs) give
      def settings(allocator, variables:, secure:, **)
        return [] if secure

        variables.filter_map do |variable, given|
          name = variable[NAMES.fetch(allocator), 1]&.downcase or next
          value = allocator == :mimalloc ? mimalloc_value(given) : given
          ignored = "neither a number nor a word for yes or no: mimalloc keeps its default" unless value
          { name: name, value: value, source: ignored ? "default" : variable.name, given: given, ignored: ignored }
        end
      end

      private

      # nil for a text that mimalloc does not take. Sizes stay text, since only mimalloc can identify their options.
      def mimalloc_value(given)
        bytes = given.b
        number = NUMBER.match(bytes) or return WORDS[bytes.upcase]
        number[:unit] ? given : bytes.to_i
      end
    end
  end
  private_constant :MallocVariables
end
