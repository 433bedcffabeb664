# frozen_string_literal: true

module Memscope
  class Configuration
    # The values that a setting allows. `accept` takes a value, and returns it as the configuration holds it, frozen, or
    # WRONG.
    # @api private
    Type = Struct.new(:allowed, :accept) do
      # @return [String] the same for an environment variable
      def allowed_in_environment
        allowed.delete_prefix("nil, ").sub("true, false", Types::WORDS.keys.join(", ")).gsub(/:(?=\w)/, "")
      end

      # @param text [String] of an environment variable, not empty
      # @return [Object] as `accept` returns the first of the text's meanings that the setting allows
      def parse(text)
        values = Types.meanings(text).map(&accept)
        values.find(-> { Types::WRONG }) { |value| !Types::WRONG.equal?(value) }
      end
    end

    # @api private
    module Types
      WRONG = Object.new.freeze
      # Spellings of a switch in the environment, in upper or lower case.
      WORDS = { "1" => true, "true" => true, "on" => true, "yes" => true,
                "0" => false, "false" => false, "off" => false, "no" => false }.freeze
      # A number in the environment.
      NUMBER = /\A\d{1,9}(\.\d{1,9})?\z/

      SWITCH = Type.new("true, false", ->(value) { [true, false].include?(value) ? value : WRONG }).freeze

      # Paths are absolute, because the process may change its directory.
      PATH = Type.new("nil, an absolute path", lambda do |value|
        path = value.respond_to?(:to_path) ? value.to_path : value
        return path if path.nil?

        fits = path.is_a?(String) && path.encoding.ascii_compatible? && path.start_with?("/") && !path.b.include?("\0")
        fits ? String.new(path).freeze : WRONG
      end).freeze

      SWITCH_OR_PATH = Type.new("true, false, an absolute path", lambda do |value|
        [true, false].include?(value) ? value : PATH.accept.call(value) || WRONG
      end).freeze
      private_constant :NUMBER

      module_function

      # @return [Array<Object>] what the text can mean: a switch, a Symbol, a number, itself
      def meanings(text)
        word = text.b.downcase
        [*WORDS[word], *(word.to_sym if word.ascii_only?), *(text.to_f if text.b.match?(NUMBER)), text]
      end

      # @param without [String, nil] a character that the text must not contain
      # @return [Type] text, or nil
      def text(without: nil)
        Type.new("nil, a String that is not empty#{", without #{without.inspect}" if without}", lambda do |value|
          return value if value.nil?
          return WRONG unless value.is_a?(String) && !value.empty?

          [*without, "\0"].any? { |character| value.b.include?(character) } ? WRONG : String.new(value).freeze
        end)
      end

      # ActiveSupport's durations count as Numeric, too.
      #
      # @param seconds [Boolean] whether it is a length of time
      # @param optional [Boolean] whether it can be nil
      # @return [Type] a number
      def number(range, seconds: false, optional: false)
        allowed = "a number #{'of seconds ' if seconds}from #{range.begin} to #{range.end}"
        Type.new("#{'nil, ' if optional}#{allowed}", lambda do |value|
          return value if value.nil? && optional
          return WRONG unless value.is_a?(Numeric) && value.real? && range.cover?(value.to_f)

          seconds && (value % 1).zero? ? value.to_i : value.to_f
        end)
      end

      # @return [Type] one of them
      def one_of(*names) = Type.new(names.map(&:inspect).join(", "), ->(name) { names.include?(name) ? name : WRONG })

      # @return [Type] an object that responds to all of the methods, or nil; only code can set it
      def responding(*methods, allowed:)
        fits = ->(value) { value.nil? || methods.all? { |name| value.respond_to?(name) } }
        Type.new(allowed, ->(value) { fits[value] ? value : WRONG })
      end
    end

    # One setting as data: its type, its default, and the environment variable that sets it.
    # What it means is in settings.words.
    class Setting
      WORDS = Words.beside(__FILE__)
      private_constant :WORDS

      # @!attribute [r] name
      #   @return [Symbol]
      # @!attribute [r] default
      #   @return [Object]
      # @!attribute [r] safe
      #   @return [Object] the least permissive value, for a process that continues although the variable is wrong
      # @!attribute [r] variable
      #   @return [String, nil] the environment variable; nil if only code can set it
      attr_reader :name, :default, :safe, :variable

      # @param type [Type]
      # @param secret [Boolean] whether its value must not be shown
      # @param attributes [Hash{Symbol => Object}] of `attr_reader`
      def initialize(type:, secret: false, **attributes)
        @type = type
        @secret = secret
        attributes.each { |name, value| instance_variable_set(:"@#{name}", value) }
        freeze
      end

      # @return [String] its meaning; docs/configuration.md has the details
      def sentence = WORDS[name]

      # @return [String] code that sets it
      def example = WORDS["#{name}.example"]

      # @return [String] the values allowed in code: "true, false"
      def allowed = @type.allowed

      # @return [String, nil] the values allowed in its variable
      def allowed_in_environment = (@type.allowed_in_environment if variable)

      # @param value [Object] from code
      # @return [Object] as the configuration holds it
      # @raise [Invalid]
      def check(value)
        accepted = @type.accept.call(value)
        return accepted unless Types::WRONG.equal?(accepted)

        raise Invalid.new(name, given(value), allowed, call: "Memscope.configure")
      end

      # @param environment [Hash{String => String}, ENV]
      # @return [Array(Object, Invalid)] the value (the default if the variable is unset or empty, `safe` if it is
      #   wrong), and what is wrong with the variable, or nil
      def read(environment)
        text = environment[variable] if variable
        return [default, nil] if text.nil? || text.empty?

        value = @type.parse(text)
        return [value, nil] unless Types::WRONG.equal?(value)

        [safe, Invalid.new(variable, given(text), allowed_in_environment)]
      end

      # @param value [Object] of this setting
      # @return [String] for people
      def show(value) = @secret && value ? "(secret)" : value.inspect

      private

      def given(value) = @secret ? "a secret #{value.class}" : Field.excerpt(value)
    end

    # Every setting, by name, in the order in which they are documented.
    SETTINGS = {
      listen: { type: Types::SWITCH_OR_PATH, default: false, variable: "MEMSCOPE_LISTEN" },
      socket_directory: { type: Types::PATH, variable: "MEMSCOPE_SOCKET_DIRECTORY" },
      username: { type: Types.text(without: ":"), safe: "", variable: "MEMSCOPE_USERNAME" },
      password: { type: Types.text, safe: "", variable: "MEMSCOPE_PASSWORD", secret: true },
      authorize: { type: Types.responding(:call, allowed: "nil, an object that responds to call, such as a lambda") },
      actions: { type: Types::SWITCH, default: true, safe: false, variable: "MEMSCOPE_ACTIONS" },
      worker_interval_seconds: { type: Types.number(1..3600, seconds: true), default: 10,
                                 variable: "MEMSCOPE_WORKER_INTERVAL" },
      metrics_ledger_interval_seconds: { type: Types.number(1..86_400, seconds: true, optional: true),
                                         variable: "MEMSCOPE_METRICS_LEDGER_INTERVAL" },
      metrics_arenas: { type: Types::SWITCH, default: false, variable: "MEMSCOPE_METRICS_ARENAS" },
      metrics_objects: { type: Types::SWITCH, default: false, variable: "MEMSCOPE_METRICS_OBJECTS" },
      objects_profile: { type: Types::SWITCH, default: false, variable: "MEMSCOPE_OBJECTS_PROFILE" },
      history: { type: Types::SWITCH, default: true, variable: "MEMSCOPE_HISTORY" },
      policy: { type: Types.one_of(:off, :observe, :act), default: :off, variable: "MEMSCOPE_POLICY" },
      policy_soft: { type: Types.number(0.1..1), default: 0.8, variable: "MEMSCOPE_POLICY_SOFT" },
      policy_interval_seconds: { type: Types.number(1..604_800, seconds: true), default: 900,
                                 variable: "MEMSCOPE_POLICY_INTERVAL" },
      policy_min_uptime_seconds: { type: Types.number(0..604_800, seconds: true), default: 1800,
                                   variable: "MEMSCOPE_POLICY_MIN_UPTIME" },
      policy_supervised: { type: Types::SWITCH, default: false, variable: "MEMSCOPE_POLICY_SUPERVISED" },
      background_thread: { type: Types::SWITCH, default: false, variable: "MEMSCOPE_BACKGROUND_THREAD" },
      logger: { type: Types.responding(:info, :warn, allowed: "nil, an object that responds to info and warn") }
    }.to_h { |name, setting| [name, Setting.new(name: name, safe: setting[:default], **setting)] }.freeze
  end
end
