# frozen_string_literal: true

module Memscope
  # Finding parts by id, in whatever has `parts`.
  module Lookup
    # @param id [Symbol, Integer]
    # @return [Record]
    # @raise [KeyError] naming the ids there are
    def [](id)
      parts.find { |part| part.id == id } || raise(KeyError.new(missing(id), receiver: self, key: id))
    end

    # @param id [Symbol, Integer]
    # @param deeper [Array<Symbol, Integer>] ids below it
    # @return [Record]
    # @raise [KeyError] naming the ids there are
    def dig(id, *deeper) = deeper.empty? ? self[id] : self[id].dig(*deeper)

    private

    def missing(id)
      "no #{id.inspect} here; there are: #{parts.empty? ? 'none' : parts.map { |part| part.id.inspect }.join(', ')}"
    end
  end
end
