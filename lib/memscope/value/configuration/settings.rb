# frozen_string_literal: true

module Memscope
  class Configuration
    # The values that a setting allows: `fits` judges one. `held` makes the configuration's frozen value of it.
    # `code_only` is true if no environment variable can give one.
    # @api private
    Type = Struct.new(:allowed, :fits, :held, :code_only) do
      def initialize(allowed, fits, held = :itself.to_proc, code_only: false) = super(allowed, fits, held, code_only)

      # @return [String] the same for an environment variable
      def allowed_in_environment
        allowed.delete_prefix("nil, ").sub("true, false", Types::WORDS.keys.join(", ")).gsub(/:(?=\w)/, "")
      end

      # @return [Array<Object>] the first meaning of a variable's text that is allowed, as `held` returns it; or none
      def parse(text) = Types.meanings(text).select(&fits).first(1).map(&held)
    end

    # @api private
    module Types
      # Spellings of a switch in the environment, in upper or lower case.
      WORDS = { "1" => true, "true" => true, "on" => true, "yes" => true,
                "0" => false, "false" => false, "off" => false, "no" => false }.freeze
      # A number in the environment.
      NUMBER = /\A\d{1,9}(\.\d{1,9})?\z/

      module_function

      # A switch, a Symbol, a number, the text itself.
      def meanings(text)
        word = text.b.downcase
        [*WORDS[word], *(word.to_sym if word.ascii_only?), *(text.to_f if text.b.match?(NUMBER)), text]
      end

      def one_of(*values) = Type.new(values.map(&:inspect).join(", "), values.method(:include?))

      # An absolute path, because the process may change its directory, or one of the others.
      def path(*others)
        Type.new([*others.map(&:inspect), "an absolute path"].join(", "),
                 ->(value) { others.include?(value) || Field.absolute?(plain(value)) },
                 ->(value) { others.include?(value) ? value : String.new(plain(value)).freeze })
      end

      def plain(path) = path.respond_to?(:to_path) ? path.to_path : path

      # Text, without one of the characters, or nil.
      def text(without: nil)
        excluded = [*without, "\0"]
        Type.new("nil, a String that is not empty#{", without #{without.inspect}" if without}", lambda do |value|
          value.nil? || (value.is_a?(String) && !value.empty? && excluded.none? { |one| value.b.include?(one) })
        end, ->(value) { value && String.new(value).freeze })
      end

      # ActiveSupport's durations count as Numeric, too.
      def number(range, seconds: false, optional: false)
        Type.new("#{'nil, ' if optional}a number #{'of seconds ' if seconds}from #{range.begin} to #{range.end}",
                 ->(one) { one.nil? ? optional : one.is_a?(Numeric) && one.real? && range.cover?(one.to_f) },
                 ->(one) { seconds && one && (one % 1).zero? ? one.to_i : one&.to_f })
      end

      # An object that responds to all of the methods, or nil.
      def responding(*methods, allowed:)
        Type.new(allowed, ->(value) { value.nil? || methods.all? { |name| value.respond_to?(name) } }, code_only: true)
      end

      SWITCH = one_of(true, false)
    end

    WORDS = Words.beside(__FILE__)
    private_constant :WORDS

    # One setting as data. Its meaning is in settings.words. `safe` is the strictest value, for a process that continues
    # although the variable is wrong. The value of a `secret` one is not shown.
    # @api private
    Setting = Struct.new(:name, :type, :default, :safe, :secret, keyword_init: true) do
      # @return [String, nil] the environment variable, MEMSCOPE_WORKER_INTERVAL for worker_interval_seconds; nil if
      #   only code can set it
      def variable = ("MEMSCOPE_#{name.name.upcase.delete_suffix('_SECONDS')}" unless type.code_only)

      # @return [String] its meaning
      def sentence = WORDS[name]

      # @return [String] code that sets it
      def example = WORDS["#{name}.example"]

      # @return [String] the values allowed in code: "true, false"
      def allowed = type.allowed

      # @return [String, nil] the values allowed in its variable
      def allowed_in_environment = (type.allowed_in_environment if variable)

      # @param value [Object] from code
      # @return [Object] as the configuration holds it
      # @raise [Invalid]
      def check(value)
        return type.held.call(value) if type.fits.call(value)

        raise Invalid.new(name, given(value), allowed, call: "Memscope.configure")
      end

      # @param environment [Hash{String => String}, ENV]
      # @return [Array(Object, Invalid)] the value (the default if the variable is unset or empty, `safe` if it is
      #   wrong), and the variable's error, or nil
      def read(environment)
        text = environment[variable] if variable
        return [default, nil] if text.nil? || text.empty?

        found = type.parse(text)
        found.empty? ? [safe, Invalid.new(variable, given(text), allowed_in_environment)] : [found.first, nil]
      end

      # @param value [Object] of this setting
      # @return [String] for people
      def show(value) = secret && value ? "(secret)" : value.inspect

      private

      def given(value) = secret ? "a secret #{value.class}" : Field.excerpt(value)
    end

    # Every setting, by name, in the order in which they are documented.
    SETTINGS = {
      listen: { type: Types.path(true, false), default: false },
      socket_directory: { type: Types.path(nil) },
      username: { type: Types.text(without: ":"), safe: "" },
      password: { type: Types.text, safe: "", secret: true },
      authorize: { type: Types.responding(:call, allowed: "nil, an object that responds to call, such as a lambda") },
      actions: { type: Types::SWITCH, default: true, safe: false },
      worker_interval_seconds: { type: Types.number(1..3600, seconds: true), default: 10 },
      metrics_ledger_interval_seconds: { type: Types.number(1..86_400, seconds: true, optional: true) },
      metrics_arenas: { type: Types::SWITCH, default: false },
      metrics_objects: { type: Types::SWITCH, default: false },
      objects_profile: { type: Types::SWITCH, default: false },
      history: { type: Types::SWITCH, default: true },
      black_box: { type: Types.path(true, false), default: true },
      release: { type: Types.text },
      policy: { type: Types.one_of(:off, :observe, :act), default: :off },
      policy_soft: { type: Types.number(0.1..1), default: 0.8 },
      policy_interval_seconds: { type: Types.number(1..604_800, seconds: true), default: 900 },
      policy_min_uptime_seconds: { type: Types.number(0..604_800, seconds: true), default: 1800 },
      policy_supervised: { type: Types::SWITCH, default: false },
      background_thread: { type: Types::SWITCH, default: false },
      logger: { type: Types.responding(:info, :warn, allowed: "nil, an object that responds to info and warn") }
    }.to_h { |name, setting| [name, Setting.new(name: name, safe: setting[:default], **setting).freeze] }.freeze
  end
end
