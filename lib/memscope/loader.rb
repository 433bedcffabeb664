# frozen_string_literal: true

require_relative "reading"

module Memscope
  # Checks a Hash from an untrusted source, so that `from_h` can build a Record from it.
  #
  # All methods raise ArgumentError, naming the path to the value, what was given and what is allowed.
  #
  # @api private
  module Loader
    NATURAL = ->(value) { value.is_a?(Integer) && !value.negative? }
    private_constant :NATURAL

    # For each type: the pattern (`===`) that its values match, and how messages describe them.
    SCALARS = {
      bytes: [NATURAL, "an Integer of 0 or more, in bytes"],
      signed_bytes: [Integer, "an Integer, in bytes"],
      count: [NATURAL, "an Integer of 0 or more"],
      integer: [Integer, "an Integer"],
      number: [->(value) { value.is_a?(Numeric) && value.finite? }, "an Integer or a finite Float"],
      string: [String, "a String"],
      symbol: [Symbol, "a Symbol or a String"],
      id: [->(value) { value.is_a?(Symbol) || value.is_a?(Integer) }, "a Symbol, a String or an Integer"],
      boolean: [->(value) { [true, false].include?(value) }, "true or false"],
      time: [Integer, 'a time like "2026-11-21T02:00:00.123Z"'],
      hash: [Hash, "a Hash"],
      list: [Array, "an Array"],
      any: [Object, "a value that JSON knows"]
    }.freeze

    TIME = /\A(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z\z/
    private_constant :SCALARS, :TIME

    module_function

    # @param record [Class] a Record class
    # @param hash [Hash] with String or Symbol keys
    # @param where [String] the path to it
    # @return [Hash{Symbol => Object}] a value for each field
    def values(record, hash, where)
      given = keyed(hash, where, record)
      given = opened(record, given, where) if record < Reading
      names = record.fields.map(&:name)
      unknown = given.keys.find { |name| !names.include?(name) }
      refuse("#{where}, a key", unknown.to_s, names.join(", ")) if unknown
      record.fields.to_h { |field| [field.name, value(field, given[field.name], path(where, field.name))] }
    end

    # Checks the schema and the kind of a reading.
    #
    # @return [Hash{Symbol => Object}] the reading without them
    def opened(record, given, where)
      check_schema(given[:schema], "#{where}: schema")
      refuse("#{where}: kind", given[:kind], record.kind) unless given[:kind] == record.kind
      given.to_h { |name, value| [name, enveloped(record, given, name, where) || value] }.except(:schema, :kind)
    end

    # A nested reading that shares the outer envelope is written without one.
    #
    # @return [Hash{Symbol => Object}, nil] the nested reading with that envelope; nil for any other value
    def enveloped(record, given, name, where)
      type = record.fields.find { |field| field.name == name }&.type
      return unless type.is_a?(Class) && type < Reading && given[name].is_a?(Hash)

      shared = { **given.slice(:schema, :memscope, :ruby, :pid, :at, :process), kind: type.kind }
      shared.merge(keyed(given[name], path(where, name), type))
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
      hash.to_h { |key, value| [key(key, where).to_sym, value] }
    end

    # @return [String] "Memscope::Ledger.from_h: rows[0].bytes"
    def path(where, name) = where.end_with?("from_h") ? "#{where}: #{name}" : "#{where}.#{name}"

    def refuse(where, given, allowed)
      shown = given.inspect
      shown = "#{shown[0, 60]}..." if shown.length > 63
      raise ArgumentError, "#{where}: given #{shown}, allowed: #{allowed}"
    end

    def value(field, given, where)
      return given if given.nil? && field.nullable

      loaded = typed(field.type, given, where)
      return loaded if field.one_of.nil? || field.one_of.include?(loaded)

      refuse(where, given, field.one_of.join(", "))
    end

    def typed(type, given, where)
      case type
      when Class then type.load(given, where)
      when Array then list(type.first, given, where)
      when :sentences then sentences(given, where)
      when :cost then Cost.load(given, where).to_h.freeze
      else scalar(type, given, where)
      end
    end

    def list(record, given, where)
      refuse(where, given, "an Array, each item a Hash as #{record.name}#to_h gives it") unless given.is_a?(Array)
      given.each_with_index.map { |item, index| record.load(item, "#{where}[#{index}]") }.freeze
    end

    def sentences(given, where)
      refuse(where, given, "a Hash of Strings") unless given.is_a?(Hash)
      given.to_h do |id, sentence|
        id = key(id, where)
        [id.to_sym, scalar(:string, sentence, "#{where}.#{id}")]
      end.freeze
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
      when :symbol, :id then given.is_a?(String) ? given.to_sym : given
      when :time then time(given)
      else plain(given, where)
      end
    end

    def plain(given, where)
      case given
      when Hash then plain_hash(given, where)
      # No path is built for an Integer, which cannot be refused: there may be a million of them.
      when Array
        given.map.with_index { |item, i| item.is_a?(Integer) ? item : plain(item, "#{where}[#{i}]") }.freeze
      when String, Symbol, Integer, true, false, nil then Field.plain(given)
      else given.is_a?(Float) && given.finite? ? given : refuse(where, given, "a value that JSON knows")
      end
    end

    # A key that consists of decimal digits was an Integer before it became JSON.
    def plain_hash(given, where)
      given.to_h do |key, value|
        text = key(key, where)
        [text.match?(/\A\d+\z/) ? text.to_i : text.to_sym, plain(value, "#{where}.#{text}")]
      end.freeze
    end

    def key(key, where)
      return Field.text(key.to_s) if key.is_a?(String) || key.is_a?(Symbol) || key.is_a?(Integer)

      refuse("#{where}, a key", key, "a String or a Symbol")
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
