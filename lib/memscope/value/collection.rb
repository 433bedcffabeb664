# frozen_string_literal: true

require_relative "reading"

module Memscope
  # A reading that lists one kind of record, and is Enumerable over them.
  module Collection
    include Enumerable

    # @yield [Record] each, in the list's order
    # @return [Enumerator<Record>, self] an Enumerator if no block is given
    def each(&block)
      return enum_for(:each) { parts.size } unless block

      parts.each(&block)
      self
    end

    # @return [Hash{Symbol => Object}] as for every reading; Enumerable's would need pairs
    def to_h = Reading.instance_method(:to_h).bind_call(self)
  end
end
