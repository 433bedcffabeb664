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

    # @param name [String, Symbol, nil] what the argument is called where the message is shown, such as "--rate"
    # @return [String] the message without the method
    def as(name = argument) = [*name, "given #{given}, allowed: #{allowed}"].join(": ")

    # @api private
    # @return [Hash{Symbol => String, nil}] its parts, for JSON
    def to_h = { argument: argument, given: given, allowed: allowed, call: call }
  end
end
