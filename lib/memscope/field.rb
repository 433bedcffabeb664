# frozen_string_literal: true

module Memscope
  # One declared attribute of a Record: how its value is taken over from the extension, which is trusted, and given out
  # again for `to_h`. Values from anywhere else go through Loader.
  #
  # Every value is frozen, and survives JSON: it compares equal afterwards.
  class Field
    NUMBERS = %i[bytes signed_bytes count integer number].freeze
    IMMEDIATES = [*NUMBERS, :symbol, :id, :boolean, :time].freeze
    private_constant :NUMBERS, :IMMEDIATES

    # @return [Symbol]
    attr_reader :name
    # @return [Symbol, Class, Array(Class)]
    attr_reader :type
    # @return [Array, nil] the only values allowed
    attr_reader :one_of

    # @param name [Symbol]
    # @param type [Symbol, Class, Array(Class)] :bytes, :signed_bytes, :count, :integer, :number, :string, :symbol,
    #   :id (a Symbol or an Integer), :boolean, :time, :hash, :list, :any (what JSON knows) or :sentences (Strings by
    #   id); a Record class; or a list of one
    # @param null [Boolean] whether nil ("not known") is a value
    # @param one_of [Array, nil] the only values allowed
    # @param counters [Boolean, Array<Symbol>] true for a total that only grows; for a Hash the keys that are such
    # @param sparse [Boolean] whether `to_h` leaves the field out where it is nil
    def initialize(name, type, null: true, one_of: nil, counters: false, sparse: false)
      @name = name
      @type = type
      @null = null
      @one_of = one_of
      @counters = counters
      @sparse = sparse
      freeze
    end

    # @return [Symbol] the method that reads it: `proved?` for a Boolean
    def reader = type == :boolean ? :"#{name}?" : name

    # @return [Boolean] whether nil is a value
    def null? = @null

    # @return [Boolean] whether its value is a number
    def number? = NUMBERS.include?(type)

    # @return [Boolean] whether it is a Record, or a list of Records
    def nested? = type.is_a?(Class) || type.is_a?(Array)

    # @return [Boolean] whether it is text, or a Hash or Array of what JSON knows, which has to be frozen to the bottom
    def plain? = !nested? && !IMMEDIATES.include?(type)

    # @param key [Symbol, Integer] of the number: the field's own name, or a key in it
    # @return [Boolean] whether that is a total that only grows
    def counter?(key) = @counters.is_a?(Array) ? @counters.include?(key) : @counters

    # @return [Boolean] whether `to_h` leaves it out
    def hidden?(value) = @sparse && value.nil?

    # Of a nested field.
    #
    # @param value [Object] as the extension built it
    # @return [Object] as the record holds it
    def take(value)
      return value if value.nil?

      type.is_a?(Array) ? value.map { |item| record(type.first, item) }.freeze : record(type, value)
    end

    # @param value [Object] as the record holds it
    # @return [Object] as `to_h` has it
    def give(value)
      case value
      when Record then value.to_h
      when Time then value.strftime("%Y-%m-%dT%H:%M:%S.%LZ")
      when Array then type.is_a?(Array) ? value.map(&:to_h) : value
      else value
      end
    end

    # @param value [Object] a frozen Hash or Array is kept as it is: whoever froze it vouches for all that is in it
    # @return [Object] frozen to the bottom, with Strings for Symbols
    def self.plain(value)
      case value
      when String then text(value)
      when Symbol then value.name
      when Hash then value.frozen? ? value : value.transform_values { |item| plain(item) }.freeze
      when Array then value.frozen? ? value : value.map { |item| plain(item) }.freeze
      else value
      end
    end

    # Text that JSON can hold, whatever bytes a path or a mapping's name has.
    #
    # @param string [String]
    # @return [String] frozen, valid UTF-8; bytes that are none are replaced
    def self.text(string)
      return string if string.frozen? && string.encoding == Encoding::UTF_8 && string.valid_encoding?

      string.dup.force_encoding(Encoding::UTF_8).scrub.freeze
    end

    private

    def record(of, value) = value.is_a?(of) ? value : of.capture(value)
  end
end
