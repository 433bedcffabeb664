# frozen_string_literal: true

require_relative "field"
require_relative "field_table"
require_relative "loading"

module Memscope
  # A frozen value with the fields that a table declares (FieldTable). It has readers (`proved?` for a Boolean), `to_h`,
  # `from_h`, equality and a short `inspect`. Building a record takes no lock and loads nothing, so it works in a trap
  # handler.
  class Record
    class << self
      # @api private
      # @return [Symbol, nil] the field that identifies a record in a list
      attr_reader :identity

      # @return [Array<Field>] declared by the class itself
      def own_fields = @own_fields ||= []

      # @return [Array<Field>] in the order of `to_h`
      alias fields own_fields

      # The name of each field, under two keys: as a Symbol and as a String.
      # @api private
      def names
        @names ||= fields.flat_map { |field| [field.name, field.name.name] }.to_h { |key| [key, key.to_sym] }.freeze
      end

      # @api private
      # @return [Array<Symbol>] fields that are all known or all nil
      def together = @together ||= []

      # Makes the records of the table beside a Ruby file (FieldTable).
      # @api private
      def declare(path) = FieldTable.declare("#{path.delete_suffix('.rb')}.fields")

      # Declares a field, with the attributes of Field. A Boolean is declared by the name of its reader, `:proved?`.
      # @api private
      # @param options [Hash{Symbol => Object}] one_of, counters, sparse and filled; and identity: whether the field
      #   identifies a record in a list, so that a Diff pairs them; together: whether it is known or nil with
      #   the other such fields; parts: whether it lists the records that Lookup and Collection offer; decisive:
      #   whether the reading is known if this field is known and lists anything
      def field(name, type, nullable, options = {})
        key = type == :boolean ? name.name.delete_suffix("?").to_sym : name
        own_fields << Field.new(key, type, nullable, options[:one_of], options[:counters],
                                options.key?(:sparse), options.key?(:filled), :"@#{key}").freeze
        define_reader(own_fields.last)
        mark(key, options)
      end

      # @api private
      def declared(name) = own_fields.find { |field| field.name == name }

      # Builds a record from a body that the extension built, which is not checked: a missing key means nil.
      #
      # @param body [Hash{Symbol => Object}]
      def capture(body) = record(body)

      # Builds a record from the result of `to_h` or its JSON.
      #
      # @param hash [Hash] with String or Symbol keys
      # @raise [Invalid] naming the class, the key, what was given and what is allowed
      def from_h(hash) = load(hash, "#{name}.from_h")

      # Does the same as from_h, for a record that may be inside another record.
      # @api private
      def load(hash, where)
        Loading.whole { require_relative "loader" }
        record(Loader.body(self, hash, where))
      end

      # With the names of fields as keys.
      # @api private
      def unwrapped(given, _where) = given

      private :new

      private

      def mark(name, options)
        @identity = name if options[:identity]
        together << name if options[:together]
        private(alias_method(:parts, name)) if options[:parts]
        define_method(:known?) { ![nil, []].include?(public_send(name)) } if options[:decisive]
      end

      def define_reader(field)
        variable = field.variable
        case field.type
        when :boolean then define_method(field.reader) { instance_variable_get(variable) }
        when :time then define_method(field.name) { instance_variable_get(variable)&.then { |at| Field.time(at) } }
        else attr_reader(field.name)
        end
      end

      # Numbers stay as they are, so that this costs microseconds.
      def record(body)
        body = body.dup
        @taken ||= fields.reject { |field| Field::IMMEDIATE.include?(field.type) }.freeze
        @taken.each { |field| body[field.name] = field.take(body[field.name]) unless body[field.name].nil? }
        new(body)
      end
    end

    def initialize(values)
      self.class.fields.each { |field| instance_variable_set(field.variable, values[field.name]) }
      freeze
    end

    # @return [Hash{Symbol => Object}] all fields, ready for JSON
    def to_h
      self.class.fields.each_with_object({}) do |field, hash|
        value = instance_variable_get(field.variable)
        hash[field.name] = value.nil? ? value : field.give(value) unless value.nil? && field.sparse
      end
    end

    # @return [String] JSON. Loads the library json: to call this in a trap handler, require it beforehand
    def to_json(*state)
      require "json" unless defined?(::JSON)
      JSON.generate(to_h, *state)
    end

    # @return [Boolean] whether the other object is of the same class and has equal fields
    def ==(other) = other.instance_of?(self.class) && other.values == values
    alias eql? ==

    # @return [Integer]
    def hash = [self.class, values].hash

    # @return [String] numbers and names; the sizes of lists and Hashes; no nested records
    def inspect
      shown = shown_values.map do |name, value|
        "#{name}=#{value.respond_to?(:each) ? "(#{value.size})" : value.inspect}"
      end
      "#<#{[self.class.name, *shown].join(' ')}>"
    end

    protected

    def values = self.class.fields.to_h { |field| [field.name, instance_variable_get(field.variable)] }

    private

    # The same record with other values, which must be frozen.
    def changed(**changes) = self.class.send(:new, { **values, **changes })

    def shown_values = values.reject { |_name, value| value.nil? || value.is_a?(Record) }
  end

  # Finds a part by its id, in whatever has `parts`.
  module Lookup
    # @param id [Symbol, Integer, String]
    # @return [Record]
    # @raise [KeyError] naming the existing ids
    def [](id)
      part(id) or
        raise KeyError.new("#{self.class} has no #{Field.excerpt(id)}; allowed: #{ids}", receiver: self, key: id)
    end

    # @api private
    # @return [Record, nil]
    def part(id) = parts.find { |part| part.id.to_s == id.to_s }

    # @param id [Symbol, Integer, String]
    # @param deeper [Array<Symbol, Integer>] ids below it
    # @return [Record]
    # @raise [KeyError] naming the existing ids
    def dig(id, *deeper) = deeper.empty? ? self[id] : self[id].dig(*deeper)

    private

    def ids = parts.empty? ? "none" : parts.map { |part| part.id.inspect }.join(", ")
  end
end
