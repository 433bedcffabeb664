# frozen_string_literal: true

module Memscope
  # Checks a Hash from an untrusted source, so that `from_h` can build a Record from it.
  #
  # All methods raise Invalid, naming the path to the value, the given value and the allowed ones. A path is the name of
  # the called method or a pair [path, step]: it becomes text only in a message, since a profile has millions of values.
  # @api private
  module Loader
    # The range of numbers: no arithmetic on numbers in it leaves the range of Float.
    NUMBERS = (-(2**128)..(2**128))
    NATURALS = (0..NUMBERS.end)
    NATURAL = ->(value) { value.is_a?(Integer) && !value.negative? }
    # The maximum number of characters of a path in a message: keys may be of any length.
    MAX_PATH = 200

    # For each type, the pattern (`===`) that its values match. loader.words has how messages describe them.
    SCALARS = {
      bytes: NATURAL, signed_bytes: Integer, count: NATURAL, integer: Integer, number: Numeric, time: Integer,
      string: String, text: String, symbol: Symbol, hash: Hash, list: Array, any: Object,
      id: ->(value) { value.is_a?(Symbol) || value.is_a?(Integer) },
      boolean: ->(value) { [true, false].include?(value) },
      numbers: ->(value) { value.is_a?(Hash) && value.each_value.all?(NUMBERS) },
      sizes: ->(value) { value.is_a?(Hash) && value.each_value.all?(Integer) },
      integers: ->(value) { value.is_a?(Array) && value.all?(Integer) },
      strings: ->(value) { value.is_a?(Array) && value.all?(String) },
      shares: ->(value) { value.is_a?(Array) && value.all?(SHARE) },
      samples: ->(value) { value.is_a?(Array) && value.all? { |sample| sample.nil? || NATURAL[sample] } }
    }.freeze

    TIME = /\A(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z\z/
    SHARE = ->(value) { value.is_a?(Array) && value.size == 4 && value.all?(Integer) }
    WORDS = Words.beside(__FILE__)

    module_function

    # @param record [Class] a Record class
    # @param hash [Hash] with String or Symbol keys
    # @param where [String, Array] the path to the Hash
    # @return [Hash{Symbol => Object}] a value for each field, as the extension gives it
    def body(record, hash, where)
      given = record.unwrapped(keyed(hash, where, record), where)
      unknown = given.each_key.find { |name| !record.names.key?(name) }
      refuse(where, unknown.to_s, "the keys #{record.fields.map(&:name).join(', ')}") if unknown
      values = record.fields.to_h { |field| [field.name, value(field, given[field.name], [where, field.name])] }
      unknown, known = record.together.partition { |name| values[name].nil? }
      refuse([where, unknown.first], nil, WORDS.fill(:known, other: known.first)) if known.any? && unknown.any?
      values
    end

    # @return [Hash{Symbol => Object}] the hash with Symbols for keys
    def keyed(hash, where, record)
      refuse(where, hash, WORDS.fill(:record, name: record.name)) unless hash.is_a?(Hash)
      hash.transform_keys { |key| record.names[key] || key(key, where).to_sym }
    end

    # @return [Array(String, String)] "Memscope::Ledger.from_h" and "rows[0].bytes"
    def path(where)
      return [where, nil] if where.is_a?(String)

      above, step = where
      call, path = path(above)
      [call, step.is_a?(Integer) ? "#{path}[#{step}]" : [*path, step].join(".")]
    end

    def refuse(where, given, allowed)
      call, path = path(where)
      Field.refuse(path && path[0, MAX_PATH], given, allowed, call: call)
    end

    def value(field, given, where)
      return given if given.nil? && field.nullable

      loaded = typed(field.type, given, where)
      refuse(where, given, WORDS[:items]) if field.filled && loaded.empty?
      return loaded if field.one_of.nil? || field.one_of.include?(loaded)

      refuse(where, given, field.one_of.join(", "))
    end

    def typed(type, given, where)
      case type
      when Class then type.load(given, where)
      when Array then list(type.first, given, where)
      when :sentences then sentences(given, where)
      when :tables then tables(given, where)
      else scalar(type, given, where)
      end
    end

    def list(record, given, where)
      refuse(where, given, WORDS.fill(:records, name: record.name)) unless given.is_a?(Array)
      given.each_with_index.map { |item, index| record.load(item, [where, index]) }
    end

    def sentences(given, where)
      refuse(where, given, WORDS[:sentences]) unless given.is_a?(Hash)
      given.to_h do |id, sentence|
        id = key(id, where)
        [id.to_sym, Field.line(scalar(:string, sentence, [where, id]))]
      end
    end

    def tables(given, where)
      refuse(where, given, WORDS[:tables]) unless given.is_a?(Hash)
      by_id(given, where) { |table, path| scalar(:numbers, table, path) }
    end

    def scalar(type, given, where)
      case loaded = converted(type, given, where)
      when SCALARS.fetch(type) then loaded
      else refuse(where, given, WORDS[type])
      end
    end

    def converted(type, given, where)
      case type
      when :symbol, :id then [String, Symbol].include?(given.class) ? Field.line(given.to_s).to_sym : given
      when :time then time(given)
      else plain(given, where)
      end
    end

    def plain(given, where)
      case given
      when Hash then by_id(given, where) { |value, path| plain_value(value, path) }
      when Array then plain_list(given, where)
      when Numeric then NUMBERS.cover?(given) ? given : refuse(where, given, WORDS[:in_range])
      when String, Symbol, true, false, nil then given
      else refuse(where, given, WORDS[:any])
      end
    end

    def plain_list(given, where)
      # The frames of a stack: there may be a million.
      return given.dup.freeze if given.all?(Integer) && given.all?(NATURALS)

      given.map.with_index { |item, index| plain(item, [where, index]) }
    end

    # A key that consists of decimal digits was an Integer before it became JSON.
    def by_id(given, where)
      given.to_h do |key, value|
        text = key(key, where)
        [text.match?(/\A\d+\z/) ? text.to_i : text.to_sym, yield(value, [where, text])]
      end
    end

    def plain_value(given, where)
      bytes = !where.last.end_with?("_bytes") || given.nil? || given.is_a?(Integer)
      bytes ? plain(given, where) : refuse(where, given, WORDS[:bytes_or_nil])
    end

    def key(key, where)
      return Field.text(key.to_s) if key.is_a?(String) || key.is_a?(Symbol) || key.is_a?(Integer)

      refuse(where, key, WORDS[:key])
    end

    # @return [Integer, nil] milliseconds since 1970, or nil for an invalid time, such as an impossible day
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
