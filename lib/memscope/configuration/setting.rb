# frozen_string_literal: true

require_relative "types"

module Memscope
  class Configuration
    # One setting, as data: what it may be, what it is by default, which environment variable sets it, and what it is
    # for.
    class Setting
      # @return [Symbol]
      attr_reader :name
      # @return [Object]
      attr_reader :default
      # @return [Object] what it is where its variable is wrong and the process goes on all the same: what lets nobody
      #   do more than was meant
      attr_reader :safe
      # @return [String, nil] the environment variable; nil where code alone can say it
      attr_reader :variable
      # @return [String] what it is for, in whole sentences
      attr_reader :sentence
      # @return [String] code that sets it
      attr_reader :example

      # @param type [Types::Type]
      # @param safe [Object] the default where that is safe
      # @param secret [Boolean] whether its value may be shown
      def initialize(name, type, default:, variable:, sentence:, example:, safe: default, secret: false)
        @name = name
        @type = type
        @default = default
        @safe = safe
        @variable = variable
        @sentence = sentence
        @example = example
        @secret = secret
        freeze
      end

      # @return [String] what it can be in code: "true, false"
      def allowed = @type.allowed

      # @return [String, nil] what its variable can be
      def allowed_in_environment = (@type.allowed_in_environment if variable)

      # @param value [Object] as code gave it
      # @return [Object] as the configuration holds it
      # @raise [ArgumentError]
      def check(value)
        taken = @type.take(value)
        return taken unless Types::WRONG.equal?(taken)

        raise ArgumentError, "Memscope.configure: #{name}: given #{given(value)}, allowed: #{allowed}"
      end

      # @param environment [Hash{String => String}, ENV]
      # @return [Array(Object, String)] the value, and what is wrong with the variable or nil; where it is not set or
      #   empty the value is the default, and where it is wrong what is safe
      def read(environment)
        text = environment[variable] if variable
        return [default, nil] if text.nil? || text.empty?

        value = @type.parse(text)
        return [value, nil] unless Types::WRONG.equal?(value)

        [safe, "#{variable}: given #{given(text)}, allowed: #{allowed_in_environment}"]
      end

      # @param value [Object] of this setting
      # @return [String] for people
      def show(value) = @secret && value ? "(secret)" : value.inspect

      private

      def given(value) = @secret ? "a secret #{value.class}" : value.inspect[0, 200]
    end
  end
end
