# frozen_string_literal: true

require_relative "field"

module Memscope
  # A frozen value with declared fields. Subclasses say what they hold:
  #
  #   class Setting < Record
  #     field :name, :string, null: false
  #     field :source, :symbol, one_of: %i[default environment]
  #   end
  #
  # and get readers (`proved?` for a Boolean), `to_h`, `from_h`, equality and a short `inspect`. Building one takes no
  # lock and loads nothing, so it works in a trap handler.
  class Record
    class << self
      # @return [Array<Field>] in the order of `to_h`
      def fields = own_fields

      # Declares a field. Takes what Field.new takes.
      #
      # @return [void]
      def field(name, type, **traits)
        declared = Field.new(name, type, **traits)
        own_fields << declared
        define_method(declared.reader) { @values[name] }
      end

      # Takes over a Hash that the extension built; nothing is checked, and a missing key is nil.
      #
      # @param body [Hash{Symbol => Object}]
      def capture(body) = take_over(body.dup)

      # Builds a value from what `to_h` or its JSON gave.
      #
      # @param hash [Hash] with String or Symbol keys
      # @raise [ArgumentError] naming the class, the key, what was given and what is allowed
      def from_h(hash) = load(hash, "#{name}.from_h")

      # from_h for a value inside another.
      #
      # @api private
      # @param where [String] the path to it, for messages
      def load(hash, where)
        require_relative "loader"
        new(Loader.values(self, hash, where))
      end

      # @return [Array<Field>] those that the class itself declares
      def own_fields = @own_fields ||= []

      private :new

      private

      # Keeps the Hash itself. Most values are numbers or come frozen, and stay as they are: a reading costs
      # microseconds.
      def take_over(values)
        plain_names.each { |name| values[name] = Field.plain(values[name]) unless values[name].frozen? }
        nested.each { |field| values[field.name] = field.take(values[field.name]) }
        values = fields.to_h { |field| [field.name, values[field.name]] } unless values.size == fields.size
        new(values)
      end

      def plain_names = @plain_names ||= fields.select(&:plain?).map(&:name).freeze

      def nested = @nested ||= fields.select(&:nested?).freeze
    end

    def initialize(values)
      @values = values.freeze
      freeze
    end

    # @return [Hash{Symbol => Object}] all fields, ready for JSON
    def to_h
      self.class.fields.each_with_object({}) do |field, hash|
        value = @values[field.name]
        hash[field.name] = field.give(value) unless field.hidden?(value)
      end
    end

    # @return [String] in a trap handler only once json is loaded: require takes a lock
    def to_json(*state)
      require "json" unless defined?(::JSON)
      JSON.generate(to_h, *state)
    end

    # @return [Boolean] whether the other is of the same class with equal fields
    def ==(other) = other.instance_of?(self.class) && other.values == values
    alias eql? ==

    # @return [Integer]
    def hash = [self.class, @values].hash

    # @return [String] its numbers and names; of lists and Hashes only the size, of other records nothing
    def inspect
      shown = shown_values.map do |name, value|
        "#{name}=#{value.respond_to?(:each) ? "(#{value.size})" : value.inspect}"
      end
      "#<#{[self.class.name, *shown].join(' ')}>"
    end

    protected

    attr_reader :values

    private

    def shown_values
      @values.slice(*self.class.fields.map(&:name)).reject { |_name, value| value.nil? || value.is_a?(Record) }
    end
  end
end
