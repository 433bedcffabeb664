# frozen_string_literal: true

module Memscope
  class Configuration
    # What a setting can be. `take` is given a value from code and `parse` an environment variable's text that is not
    # empty; both return the value as the configuration holds it, frozen, or WRONG.
    #
    # @api private
    module Types
      WRONG = Object.new.freeze

      # The base: what is not said here cannot be said in an environment variable.
      class Type
        attr_reader :allowed

        def initialize(allowed)
          @allowed = allowed
        end

        def allowed_in_environment = allowed

        def parse(text) = take(text)
      end

      # true or false; in the environment as people spell it, in capitals too.
      class Switch < Type
        WORDS = { "1" => true, "true" => true, "on" => true, "yes" => true,
                  "0" => false, "false" => false, "off" => false, "no" => false }.freeze
        private_constant :WORDS

        def initialize(allowed = "true, false") = super

        def allowed_in_environment = WORDS.keys.join(", ")

        def take(value) = [true, false].include?(value) ? value : WRONG

        def parse(text) = WORDS.fetch(text.b.downcase, WRONG)
      end

      # Text, or nil.
      class Text < Type
        # @param without [String, nil] a character that it must not hold
        def initialize(without: nil)
          @without = without
          super("nil, a String that is not empty#{", without #{without.inspect}" if without}")
        end

        def allowed_in_environment = "text#{" without #{@without.inspect}" if @without}"

        def take(value)
          return value if value.nil?
          return WRONG unless value.is_a?(String) && !value.empty?

          bytes = value.b
          bytes.include?("\0") || (@without && bytes.include?(@without)) ? WRONG : String.new(value).freeze
        end
      end

      # An absolute path, or nil: the process may change its directory.
      class Path < Type
        def initialize = super("nil, an absolute path")

        def allowed_in_environment = "an absolute path"

        def take(value)
          path = value.respond_to?(:to_path) ? value.to_path : value
          return path if path.nil?

          path.is_a?(String) && path.start_with?("/") && !path.b.include?("\0") ? String.new(path).freeze : WRONG
        end
      end

      # true, false or an absolute path.
      class SwitchOrPath < Switch
        def initialize
          @path = Path.new
          super("true, false, an absolute path")
        end

        def allowed_in_environment = "#{super}, an absolute path"

        def take(value)
          [true, false].include?(value) ? value : @path.take(value) || WRONG
        end

        def parse(text) = text.start_with?("/") ? @path.take(text) : super
      end

      # A length of time.
      class Seconds < Type
        NUMBER = /\A\d{1,9}(\.\d{1,9})?\z/
        private_constant :NUMBER

        # @param range [Range<Integer>]
        def initialize(range, optional: false)
          @range = range
          @optional = optional
          super("#{'nil, ' if optional}a number of seconds from #{range.begin} to #{range.end}")
        end

        def allowed_in_environment = allowed.delete_prefix("nil, ")

        # ActiveSupport's durations say that they are numbers, and are taken for such.
        def take(value)
          return value if value.nil? && @optional
          return WRONG unless value.is_a?(Numeric) && value.real? && @range.cover?(value.to_f)

          (value % 1).zero? ? value.to_i : value.to_f
        end

        def parse(text) = text.b.match?(NUMBER) ? take(text.to_f) : WRONG
      end

      # An object that responds to all of the methods, or nil. Code alone can say it.
      class Responding < Type
        def initialize(*methods, allowed:)
          @methods = methods
          super(allowed)
        end

        def take(value) = value.nil? || @methods.all? { |name| value.respond_to?(name) } ? value : WRONG
      end
    end
  end
end
