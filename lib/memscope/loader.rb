# frozen_string_literal: true

require_relative "reading"

module Memscope
  # Checks a Hash from an untrusted source, so that `from_h` can build a Record from it.
  #
  # All methods raise ArgumentError, naming the path to the value, what was given and what is allowed. A path is a
  # String or a pair [path, step]: it becomes text only in a message, since a profile has millions of values.
  #
  # @api private
  module Loader
    # The range of numbers: no arithmetic on numbers in it leaves the range of Float.
    NUMBERS = (-(2**128)..(2**128))
    NATURALS = (0..NUMBERS.end)
    NATURAL = ->(value) { value.is_a?(Integer) && !value.negative? }
    # The most characters of a path in a message: keys may be of any length.
    LONGEST_PATH = 200

    # For each type: the pattern (`===`) that its values match, and how messages describe them.
    SCALARS = {
      bytes: [NATURAL, "an Integer of 0 or more, in bytes"],
      signed_bytes: [Integer, "an Integer, in bytes"],
      count: [NATURAL, "an Integer of 0 or more"],
      integer: [Integer, "an Integer"],
      number: [Numeric, "an Integer or a finite Float"],
      string: [String, "a String"],
      text: [String, "a String"],
      symbol: [Symbol, "a Symbol or a String"],
      id: [->(value) { value.is_a?(Symbol) || value.is_a?(Integer) }, "a Symbol, a String or an Integer"],
      boolean: [->(value) { [true, false].include?(value) }, "true or false"],
      time: [Integer, 'a time like "2026-11-21T02:00:00.123Z"'],
      hash: [Hash, "a Hash"],
      numbers: [->(value) { value.is_a?(Hash) && value.each_value.all?(NUMBERS) }, "a Hash of numbers"],
      sizes: [->(value) { value.is_a?(Hash) && value.each_value.all?(Integer) }, "a Hash of Integers, in bytes"],
      list: [Array, "an Array"],
      integers: [->(value) { value.is_a?(Array) && value.all?(Integer) }, "an Array of Integers"],
      strings: [->(value) { value.is_a?(Array) && value.all?(String) }, "an Array of Strings"],
      shares: [->(value) { value.is_a?(Array) && value.all?(SHARE) }, "an Array, each item four Integers"],
      samples: [->(value) { value.is_a?(Array) && value.all? { |sample| sample.nil? || NATURAL[sample] } },
                "an Array, each item an Integer of 0 or more, or nil"],
      any: [Object, "a JSON value"]
    }.freeze

    TIME = /\A(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z\z/
    SHARE = ->(value) { value.is_a?(Array) && value.size == 4 && value.all?(Integer) }
    private_constant :NUMBERS, :NATURALS, :NATURAL, :SHARE, :LONGEST_PATH, :SCALARS, :TIME

    module_function

    # @param record [Class] a Record class
    # @param hash [Hash] with String or Symbol keys
    # @param where [String, Array] the path to the Hash
    # @return [Hash{Symbol => Object}] a value for each field
    def values(record, hash, where)
      given = keyed(hash, where, record)
      given = opened(record, given, where) if record < Reading
      unknown = given.each_key.find { |name| !record.names.key?(name) }
      refuse(where, unknown.to_s, record.fields.map(&:name).join(", "), ", a key") if unknown
      complete(record, where, record.fields.to_h do |field|
        [field.name, value(field, given[field.name], [where, field.name])]
      end)
    end

    # @return [Hash{Symbol => Object}] the values, if the fields that are known together are so
    def complete(record, where, values)
      record.together.each do |names|
        known, unknown = names.partition { |name| values[name] }
        refuse([where, unknown.first], nil, "a value, as for #{known.first}") if known.any? && unknown.any?
      end
      values
    end

    # Checks the schema and the kind of a reading.
    #
    # @return [Hash{Symbol => Object}] the reading without its schema and kind
    def opened(record, given, where)
      check_schema(given[:schema], [where, :schema])
      refuse([where, :kind], given[:kind], record.kind) unless given[:kind] == record.kind
      given.to_h { |name, value| [name, enveloped(record, given, name, where) || value] }.except(:schema, :kind)
    end

    # A nested reading that shares the outer envelope is written without an envelope.
    #
    # @return [Hash{Symbol => Object}, nil] the nested reading with the outer envelope; nil for any other value
    def enveloped(record, given, name, where)
      type = record.fields.find { |field| field.name == name }&.type
      return unless type.is_a?(Class) && type < Reading && given[name].is_a?(Hash)

      shared = { **given.slice(:schema, :memscope, :ruby, :pid, :at, :process), kind: type.kind }
      shared.merge(keyed(given[name], [where, name], type).compact)
    end

    def check_schema(schema, where)
      known = Reading::SCHEMAS
      return if known.include?(schema)

      newer = "; a newer memscope wrote this" if schema.is_a?(Integer) && schema > known.max
      refuse(where, schema, "#{known.join(', ')}, which is all that memscope #{VERSION} knows#{newer}")
    end

    # @return [Hash{Symbol => Object}] the hash with Symbols for keys
    def keyed(hash, where, record)
      refuse(where, hash, "a Hash as #{record.name}#to_h gives it") unless hash.is_a?(Hash)
      hash.transform_keys { |key| record.names[key] || key(key, where).to_sym }
    end

    # @return [String] "Memscope::Ledger.from_h: rows[0].bytes"
    def path(where)
      return where if where.is_a?(String)

      above, step = where
      return "#{path(above)}[#{step}]" if step.is_a?(Integer)

      "#{path(above)}#{above.is_a?(String) ? ': ' : '.'}#{step}"
    end

    def refuse(where, given, allowed, what = "")
      Field.refuse("#{path(where)[0, LONGEST_PATH]}#{what}", given, allowed)
    end

    def value(field, given, where)
      return given if given.nil? && field.nullable

      loaded = typed(field.type, given, where)
      refuse(where, given, "one or more items") if field.filled && loaded.empty?
      return loaded if field.one_of.nil? || field.one_of.include?(loaded)

      refuse(where, given, field.one_of.join(", "))
    end

    def typed(type, given, where)
      case type
      when Class then type.load(given, where)
      when Array then list(type.first, given, where)
      when :sentences then sentences(given, where)
      when :tables then tables(given, where)
      when :cost then Cost.load(given, where).to_h.freeze
      else scalar(type, given, where)
      end
    end

    def list(record, given, where)
      refuse(where, given, "an Array, each item a Hash as #{record.name}#to_h gives it") unless given.is_a?(Array)
      given.each_with_index.map { |item, index| record.load(item, [where, index]) }.freeze
    end

    def sentences(given, where)
      refuse(where, given, "a Hash of Strings") unless given.is_a?(Hash)
      given.to_h do |id, sentence|
        id = key(id, where)
        [id.to_sym, scalar(:string, sentence, [where, id])]
      end.freeze
    end

    def tables(given, where)
      refuse(where, given, "a Hash of Hashes of numbers") unless given.is_a?(Hash)
      by_id(given, where) { |table, path| scalar(:numbers, table, path) }
    end

    def scalar(type, given, where)
      pattern, allowed = SCALARS.fetch(type)
      case loaded = converted(type, given, where)
      when pattern then loaded
      else refuse(where, given, allowed)
      end
    end

    def converted(type, given, where)
      case type
      when :symbol, :id then [String, Symbol].include?(given.class) ? Field.line(given.to_s).to_sym : given
      when :string then given.is_a?(String) ? Field.line(given) : given
      when :time then time(given)
      else plain(given, where)
      end
    end

    def plain(given, where)
      case given
      when Hash then by_id(given, where) { |value, path| plain_value(value, path) }
      when Array then plain_list(given, where)
      when Numeric then NUMBERS === given ? given : refuse(where, given, "a number from -2**128 to 2**128")
      when String, Symbol, true, false, nil then Field.plain(given)
      else refuse(where, given, "a JSON value")
      end
    end

    def plain_list(given, where)
      # The frames of a stack: there may be a million.
      return given.dup.freeze if given.all?(Integer) && given.all?(NATURALS)

      given.map.with_index { |item, index| plain(item, [where, index]) }.freeze
    end

    # A key that consists of decimal digits was an Integer before it became JSON.
    def by_id(given, where)
      given.to_h do |key, value|
        text = key(key, where)
        [text.match?(/\A\d+\z/) ? text.to_i : text.to_sym, yield(value, [where, text])]
      end.freeze
    end

    def plain_value(given, where)
      bytes = !where.last.end_with?("_bytes") || given.nil? || given.is_a?(Integer)
      bytes ? plain(given, where) : refuse(where, given, "an Integer, in bytes, or nil")
    end

    def key(key, where)
      return Field.text(key.to_s) if key.is_a?(String) || key.is_a?(Symbol) || key.is_a?(Integer)

      refuse(where, key, "a String or a Symbol", ", a key")
    end

    # @return [Integer, nil] milliseconds since 1970; nil for an invalid time, such as an impossible day
    def time(given)
      parts = given.is_a?(String) && given.match(TIME)&.captures&.map(&:to_i)
      return unless parts

      time = Time.utc(*parts[0, 6], parts.last * 1000)
      (time.to_i * 1000) + parts.last if time.strftime(Field::TIME) == given
    rescue ArgumentError
      nil
    end
  end
end
