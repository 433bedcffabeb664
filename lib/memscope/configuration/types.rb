# frozen_string_literal: true

module Memscope
  class Configuration
    # What a setting can be. `accept` is called with a value from code, `parse` with the text, never empty, of an
    # environment variable; both return the value as the configuration holds it, frozen, or WRONG.
    #
    # @api private
    Type = Struct.new(:allowed, :allowed_in_environment, :accept, :parse)

    # @api private
    module Types
      WRONG = Object.new.freeze
      # How the environment spells a switch, in capitals too.
      WORDS = { "1" => true, "true" => true, "on" => true, "yes" => true,
                "0" => false, "false" => false, "off" => false, "no" => false }.freeze
      SECONDS = /\A\d{1,9}(\.\d{1,9})?\z/
      private_constant :WORDS, :SECONDS

      SWITCH = Type.new("true, false", WORDS.keys.join(", "),
                        ->(value) { [true, false].include?(value) ? value : WRONG },
                        ->(text) { WORDS.fetch(text.b.downcase, WRONG) }).freeze

      # Absolute, as the process may change its directory.
      ACCEPT_PATH = lambda do |value|
        path = value.respond_to?(:to_path) ? value.to_path : value
        return path if path.nil?

        path.is_a?(String) && path.start_with?("/") && !path.b.include?("\0") ? String.new(path).freeze : WRONG
      end
      private_constant :ACCEPT_PATH

      PATH = Type.new("nil, an absolute path", "an absolute path", ACCEPT_PATH, ACCEPT_PATH).freeze

      SWITCH_OR_PATH = Type.new("true, false, an absolute path",
                                "#{SWITCH.allowed_in_environment}, an absolute path",
                                ->(value) { [true, false].include?(value) ? value : ACCEPT_PATH.call(value) || WRONG },
                                ->(text) { (text.start_with?("/") ? ACCEPT_PATH : SWITCH.parse).call(text) }).freeze

      module_function

      # @param without [String, nil] a character that the text must not contain
      # @return [Type] text, or nil
      def text(without: nil)
        accept = lambda do |value|
          return value if value.nil?
          return WRONG unless value.is_a?(String) && !value.empty?

          [*without, "\0"].any? { |character| value.b.include?(character) } ? WRONG : String.new(value).freeze
        end
        Type.new("nil, a String that is not empty#{", without #{without.inspect}" if without}",
                 "text#{" without #{without.inspect}" if without}", accept, accept)
      end

      # ActiveSupport's durations are Numeric, too.
      #
      # @param range [Range<Integer>]
      # @param optional [Boolean] whether it can be nil
      # @return [Type] a length of time
      def seconds(range, optional: false)
        accept = lambda do |value|
          return value if value.nil? && optional
          return WRONG unless value.is_a?(Numeric) && value.real? && range.cover?(value.to_f)

          (value % 1).zero? ? value.to_i : value.to_f
        end
        allowed = "a number of seconds from #{range.begin} to #{range.end}"
        Type.new("#{'nil, ' if optional}#{allowed}", allowed, accept,
                 ->(text) { text.b.match?(SECONDS) ? accept.call(text.to_f) : WRONG })
      end

      # @return [Type] an object that responds to all of the methods, or nil; only code can set it
      def responding(*methods, allowed:)
        accept = ->(value) { value.nil? || methods.all? { |name| value.respond_to?(name) } ? value : WRONG }
        Type.new(allowed, nil, accept, nil)
      end
    end
  end
end
