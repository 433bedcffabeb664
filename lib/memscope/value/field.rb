# frozen_string_literal: true

module Memscope
  # An argument, or a part of a Hash or of JSON, that is not allowed.
  class Invalid < ArgumentError
    # @return [String, nil] the method that was called
    attr_reader :call
    # @return [String, nil] the name of the argument, or the path to the part: "rows[0].bytes"; nil for the whole
    attr_reader :argument
    # @return [String] the value as `inspect` shows it, shortened
    attr_reader :given
    # @return [String]
    attr_reader :allowed

    # @api private
    def initialize(argument, given, allowed, call: nil)
      @argument = argument&.to_s
      @given = given
      @allowed = allowed
      @call = call&.to_s
      super([*call, as(argument)].join(": "))
    end

    # @param name [String, Symbol, nil] the argument's name where the message is shown, such as "--rate"
    # @return [String] the message without the method
    def as(name = argument) = [*name, "given #{given}, allowed: #{allowed}"].join(": ")

    # @api private
    # @return [Hash{Symbol => String, nil}] its parts, for JSON
    def to_h = { argument: argument, given: given, allowed: allowed, call: call }
  end

  # One declared attribute of a Record, and text that can be shown anywhere.
  #
  # Every value is frozen, and equal after a round trip through JSON.
  #
  # * `type`: :bytes, :signed_bytes, :count, :integer, :number, :string (one line), :text (lines), :symbol, :id (a
  #   Symbol or an Integer), :boolean, :time (in milliseconds since 1970), :hash, :numbers (a Hash of numbers), :sizes
  #   (bytes by id), :tables (a Hash of Hashes of numbers), :list, :integers, :strings, :shares (lists of four
  #   Integers), :samples (a list of counts and nil), :any (any JSON value) or :sentences (Strings by id); a Record
  #   class; or an Array of one Record class, for a list of such records
  # * `nullable`: whether nil ("not known") is allowed
  # * `one_of`: nil, or the only values allowed
  # * `counters`: true for a total that only grows; for a Hash, the keys of such totals
  # * `sparse`: whether `to_h` leaves the field out if it is nil
  # * `filled`: whether a list has at least one item
  # * `variable`: the record's instance variable
  # @api private
  Field = Struct.new(:name, :type, :nullable, :one_of, :counters, :sparse, :filled, :variable)

  class Field
    # Types of numbers.
    NUMBERS = %i[bytes signed_bytes count integer number].freeze
    # Types whose values a record holds as they are given.
    IMMEDIATE = [*NUMBERS, :boolean, :symbol, :id, :time].freeze
    # Format of a time in `to_h` and JSON, for Time#strftime.
    TIME = "%Y-%m-%dT%H:%M:%S.%LZ"
    # Shared by all readings, which have dozens of each.
    NO_ITEMS = [].freeze
    NO_KEYS = {}.freeze
    # The maximum number of characters of a value in a message.
    EXCERPT = 64
    # Characters that a terminal, an editor or a browser obeys instead of showing: control characters, line and
    # paragraph separators, and those that set the direction of text.
    HIDDEN = /[[:cntrl:]\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/
    HIDDEN_IN_LINES = /[#{HIDDEN.source}&&[^\n\t]]/
    # The part of HIDDEN that is ASCII, which is searched for eight times as fast.
    HIDDEN_IN_ASCII = /[[:cntrl:]]/
    private_constant :NO_ITEMS, :NO_KEYS, :EXCERPT, :HIDDEN, :HIDDEN_IN_LINES, :HIDDEN_IN_ASCII

    def reader = type == :boolean ? :"#{name}?" : name

    # @return [Object] as the record holds it
    def take(value)
      case type
      when Array then value.empty? ? NO_ITEMS : value.map { |item| record(type.first, item) }.freeze
      when Class then record(type, value)
      when :string then value.is_a?(String) ? Field.line(value) : Field.plain(value)
      else Field.plain(value)
      end
    end

    # @return [Object] as it is in `to_h`
    def give(value)
      case type
      when Array then value.map(&:to_h)
      when Class then value.to_h
      when :time then Field.time(value).strftime(TIME)
      else value
      end
    end

    # @return [Time] UTC, frozen
    def self.time(milliseconds) = Time.at(milliseconds / 1000, milliseconds % 1000, :millisecond).utc.freeze

    # @param value [Object] a frozen Hash or Array is kept as it is: whoever froze it has frozen its content
    # @return [Object] deeply frozen, with Strings for Symbols, all of them as `text` returns them
    def self.plain(value)
      case value
      when String then text(value)
      when Symbol then text(value.name)
      when Hash then value.empty? ? NO_KEYS : plain_hash(value)
      when Array then value.frozen? ? value : value.map { |item| plain(item) }.freeze
      else value
      end
    end

    # Without a pair for each key: reports and readings have hundreds.
    def self.plain_hash(hash)
      return hash if hash.frozen?

      copy = {}
      hash.each { |key, item| copy[key.is_a?(String) ? text(key) : key] = plain(item) }
      copy.freeze
    end
    private_class_method :plain_hash

    # @param string [String] a path or a mapping's name can have any bytes
    # @return [String] frozen, valid UTF-8, with invalid bytes replaced
    def self.utf8(string)
      known = string.ascii_only? || (string.encoding == Encoding::UTF_8 && string.valid_encoding?)
      return string if known && string.frozen?

      known && string.encoding == Encoding::UTF_8 ? -string : string.dup.force_encoding(Encoding::UTF_8).scrub.freeze
    end

    # Everything that a reading holds has passed through this method or `line`, so no surface needs to look for these
    # characters again.
    #
    # @return [String] frozen, valid UTF-8, that can be shown anywhere: with "?" for each hidden character
    def self.text(string, hidden = HIDDEN_IN_LINES)
      string = utf8(string)
      searched = string.ascii_only? ? HIDDEN_IN_ASCII : HIDDEN
      string.match?(searched) ? string.gsub(hidden, "?").freeze : string
    end

    # @return [String] as `text` returns it, and one line
    def self.line(string) = text(string, HIDDEN)

    # @return [Boolean] whether it is an absolute path, which can have any bytes but NUL
    def self.absolute?(path)
      path.is_a?(String) && path.encoding.ascii_compatible? && path.start_with?("/") && !path.b.include?("\0")
    end

    # @return [String] its `inspect`, cut if it is long; its class if it cannot be inspected; for a huge Integer, its
    #   bit length
    def self.excerpt(value)
      value = value[0, EXCERPT] if value.is_a?(String)
      return "an Integer of #{value.bit_length} bits" if value.is_a?(Integer) && value.bit_length > 256

      shown = line(value.inspect) # inspect shows what sets the direction of text
      shown.length > EXCERPT ? "#{shown[0, EXCERPT - 3]}..." : shown
    rescue StandardError # an object need not be able to inspect itself
      "a #{value.class}"
    end

    # @param argument [String, Symbol, nil] as for Invalid, and `call` too
    # @raise [Invalid] in any case
    def self.refuse(argument, given, allowed, call: nil)
      raise Invalid.new(argument, excerpt(given), allowed, call: call)
    end

    # @yieldreturn [Boolean] whether it is allowed
    # @return [Object] the given value
    def self.check(argument, given, allowed, call: nil) = yield ? given : refuse(argument, given, allowed, call: call)

    # @return [Object] the given value, which must be one of those allowed
    def self.choice(argument, given, allowed, call: nil)
      # An Integer's == would ask the given object's.
      check(argument, given, allowed.map(&:inspect).join(", "), call: call) { allowed.any? { |one| one.eql?(given) } }
    end

    # @return [Numeric] the given seconds, which must be in the range
    def self.seconds(argument, given, range, allowed = "a number of seconds from #{range.begin} to #{range.end}",
                     call: nil)
      check(argument, given, allowed, call: call) { given.is_a?(Numeric) && given.real? && range.cover?(given) }
    end

    private

    def record(of, value) = value.is_a?(of) ? value : of.capture(value)
  end
end
