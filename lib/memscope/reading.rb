# frozen_string_literal: true

require_relative "loading"
require_relative "reasons"
require_relative "version"

module Memscope
  # The extension's methods, most of which return the body of one reading. Only this file loads the extension. If it
  # cannot be loaded, the same methods return what Ruby alone knows, with the reason why the rest is missing.
  #
  # @api private
  module Native
    begin
      require "memscope/memscope.so"
    rescue LoadError => e
      require_relative "native/absent"
      extend Absent

      @absence = Absent.reason(e).freeze
      Memscope.define_singleton_method(:rss) { nil }
    end

    # @return [String, nil] why the extension is not loaded; nil if it is
    def self.absence = @absence
  end
  private_constant :Native

  # One declared attribute of a Record: how its value is taken from the extension, which is trusted, and returned by
  # `to_h`. Loader checks values from anywhere else.
  #
  # Every value is frozen, and equal after a round trip through JSON.
  #
  # * `type`: :bytes, :signed_bytes, :count, :integer, :number, :string (one line), :text (lines), :symbol, :id (a
  #   Symbol or an Integer), :boolean, :time (in milliseconds since 1970), :cost (the Hash of a Cost), :hash, :numbers
  #   (a Hash of numbers), :sizes (bytes by id), :tables (a Hash of Hashes of numbers), :list, :integers, :strings,
  #   :shares (lists of four Integers), :samples (a list of counts and nil), :any (any JSON value) or :sentences
  #   (Strings by id); a Record class; or an Array of one Record class, for a list of such records
  # * `nullable`: whether nil ("not known") is allowed
  # * `one_of`: nil, or the only values allowed
  # * `counters`: true for a total that only grows; for a Hash, the keys of such totals
  # * `sparse`: whether `to_h` leaves the field out if it is nil
  # * `filled`: whether a list has at least one item
  #
  # @api private
  Field = Struct.new(:name, :type, :nullable, :one_of, :counters, :sparse, :filled)

  class Field
    # Types of numbers.
    NUMBERS = %i[bytes signed_bytes count integer number].freeze
    # Format of a time in `to_h` and JSON, for Time#strftime.
    TIME = "%Y-%m-%dT%H:%M:%S.%LZ"
    # How many characters of a value a message repeats at most.
    EXCERPT = 64
    # Types that Field.plain freezes deeply.
    PLAIN = %i[string text hash numbers sizes tables list integers strings shares samples any sentences].freeze
    # What a terminal, an editor or a browser obeys instead of showing it: control characters, line and paragraph
    # separators, and characters that set the direction of text.
    HIDDEN = /[[:cntrl:]\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/
    HIDDEN_IN_LINES = /[#{HIDDEN.source}&&[^\n\t]]/
    # The part of HIDDEN that is ASCII, which is searched for eight times as fast.
    HIDDEN_IN_ASCII = /[[:cntrl:]]/
    private_constant :EXCERPT, :HIDDEN, :HIDDEN_IN_LINES, :HIDDEN_IN_ASCII

    # @return [Symbol] the method that reads it: `proved?` for a Boolean
    def reader = type == :boolean ? :"#{name}?" : name

    # @param value [Object] the value of a nested field, as the extension built it
    # @return [Object] as the record holds it
    def take(value)
      return value if value.nil?

      type.is_a?(Array) ? value.map { |item| record(type.first, item) }.freeze : record(type, value)
    end

    # @param value [Object] as the record holds it
    # @return [Object] as it is in `to_h`
    def give(value)
      case type
      when Array then value&.map(&:to_h)
      when Class then value&.to_h
      when :time then value && Field.time(value).strftime(TIME)
      else value
      end
    end

    # @param milliseconds [Integer] since 1970
    # @return [Time] UTC, frozen
    def self.time(milliseconds) = Time.at(0, milliseconds, :millisecond).utc.freeze

    # @param value [Object] a frozen Hash or Array is kept as it is: whoever froze it has frozen its content
    # @return [Object] deeply frozen, with Strings for Symbols, all of them as `text` returns them
    def self.plain(value)
      case value
      when String then text(value)
      when Symbol then text(value.name)
      when Hash then value.frozen? ? value : plain_hash(value)
      when Array then value.frozen? ? value : value.map { |item| plain(item) }.freeze
      else value
      end
    end

    def self.plain_hash(hash) = hash.to_h { |key, item| [key.is_a?(String) ? text(key) : key, plain(item)] }.freeze
    private_class_method :plain_hash

    # @param string [String] a path or a mapping's name can have any bytes
    # @return [String] frozen, valid UTF-8; invalid bytes are replaced
    def self.utf8(string)
      known = string.ascii_only? || (string.encoding == Encoding::UTF_8 && string.valid_encoding?)
      return string if known && string.frozen?

      string.dup.force_encoding(Encoding::UTF_8).scrub.freeze
    end

    # Everything that a reading holds has passed through this method or `line`, so no surface needs to look for these
    # characters again.
    #
    # @param string [String]
    # @param hidden [Regexp]
    # @return [String] frozen, valid UTF-8, that can be shown anywhere: with "?" for each hidden character
    def self.text(string, hidden = HIDDEN_IN_LINES)
      string = utf8(string)
      searched = string.ascii_only? ? HIDDEN_IN_ASCII : HIDDEN
      string.match?(searched) ? string.gsub(hidden, "?").freeze : string
    end

    # @param string [String] a name, a path
    # @return [String] as `text` returns it, and one line
    def self.line(string) = text(string, HIDDEN)

    # @param value [Object] the value that a message repeats
    # @return [String] its `inspect`, cut if it is long; its class if it cannot be inspected; for a huge Integer, its
    #   bit length
    def self.excerpt(value)
      value = value[0, EXCERPT] if value.is_a?(String)
      return "an Integer of #{value.bit_length} bits" if value.is_a?(Integer) && value.bit_length > 256

      shown = value.inspect
      shown.length > EXCERPT ? "#{shown[0, EXCERPT - 3]}..." : shown
    rescue StandardError # an object need not be able to inspect itself
      "a #{value.class}"
    end

    # @param what [String] the argument, preceded by the method that takes it
    # @param given [Object]
    # @param allowed [String]
    # @raise [ArgumentError] in any case
    def self.refuse(what, given, allowed)
      raise ArgumentError, "#{what}: given #{excerpt(given)}, allowed: #{allowed}"
    end

    # @param what [String] as for refuse
    # @param given [Object]
    # @param allowed [Array] the only values allowed
    # @return [Object] the given value
    # @raise [ArgumentError] if the given value is not allowed
    def self.choice(what, given, allowed)
      found = allowed.any? { |one| one.eql?(given) } # an Integer's == would ask the given object's
      found ? given : refuse(what, given, allowed.map(&:inspect).join(", "))
    end

    # @param what [String] as for refuse
    # @param given [Object]
    # @param range [Range] of seconds
    # @param allowed [String]
    # @return [Numeric] the given seconds
    # @raise [ArgumentError] for anything but a number in the range
    def self.seconds(what, given, range, allowed = "a number of seconds from #{range.begin} to #{range.end}")
      given.is_a?(Numeric) && given.real? && range.cover?(given) ? given : refuse(what, given, allowed)
    end

    private

    def record(of, value) = value.is_a?(of) ? value : of.capture(value)
  end

  # A frozen value with declared fields:
  #
  #   class Setting < Record
  #     field :name, :string, null: false
  #     field :source, :symbol, one_of: %i[default environment]
  #   end
  #
  # has readers (`proved?` for a Boolean), `to_h`, `from_h`, equality and a short `inspect`. Building a record takes no
  # lock and loads nothing, so it works in a trap handler.
  class Record
    # Readers are aliases of this method: a closure for each would take more memory and time.
    def read = @values.fetch(__callee__)
    private :read

    class << self
      # @return [Array<Field>] in the order of `to_h`
      def fields = own_fields

      # @api private
      # @return [Hash{Symbol, String => Symbol}] the name of each field, under two keys: as a Symbol and as a String
      def names
        @names ||= fields.flat_map { |field| [field.name, field.name.name] }.to_h { |key| [key, key.to_sym] }.freeze
      end

      # Declares a field, with the attributes of Field. A Boolean is declared by the name of its reader, `:proved?`.
      #
      # @!macro [attach] record_field
      #   @!attribute [r] $1
      # @return [void]
      def field(name, type, null: true, one_of: nil, counters: nil, sparse: false, filled: false)
        key = type == :boolean ? name.name.delete_suffix("?").to_sym : name
        own_fields << Field.new(key, type, null, one_of, counters, sparse, filled).freeze
        case type
        when :boolean then define_method(:"#{key}?") { @values[key] }
        when :time then define_method(name) { @values[name] && Field.time(@values[name]) }
        else public(alias_method(name, :read))
        end
      end

      # Declares fields that are all known or all nil.
      #
      # @return [Array<Array<Symbol>>] all such declarations
      def together(*names) = (@together ||= []).push(*([names] if names.any?))

      # Builds a record from a body that the extension built. Nothing is checked, and a missing key means nil. Numbers
      # and frozen values stay as they are, so that this costs microseconds.
      #
      # @param body [Hash{Symbol => Object}] becomes part of the record; if it is frozen, a copy does
      def capture(body)
        body = body.dup if body.frozen?
        plain_names.each { |name, type| body[name] = type == :string ? line(body[name]) : Field.plain(body[name]) }
        nested.each { |field| body[field.name] = field.take(body[field.name]) }
        new(body.size == fields.size ? body : completed(body))
      end

      # Builds a record from the result of `to_h` or its JSON.
      #
      # @param hash [Hash] with String or Symbol keys
      # @raise [ArgumentError] naming the class, the key, what was given and what is allowed
      def from_h(hash) = load(hash, "#{name}.from_h")

      # Does what from_h does, for a record that may be inside another record.
      #
      # @api private
      # @param where [String, Array] the path to the record, for messages, as Loader takes it
      def load(hash, where)
        Loading.whole { require_relative "loader" }
        new(Loader.values(self, hash, where))
      end

      # @return [Array<Field>] declared by the class itself
      def own_fields = @own_fields ||= []

      private :new

      private

      # Declares the list whose parts Lookup finds and Collection iterates over.
      def parts_of(name) = private(define_method(:parts) { @values[name] })

      def completed(body) = fields.to_h { |field| [field.name, body[field.name]] }

      def line(value) = value.is_a?(String) ? Field.line(value) : Field.plain(value)

      def plain_names
        @plain_names ||= fields.filter_map { |field| [field.name, field.type] if Field::PLAIN.include?(field.type) }
                               .freeze
      end

      def nested = @nested ||= fields.reject { |field| field.type.is_a?(Symbol) }.freeze
    end

    def initialize(values)
      @values = values.freeze
      freeze
    end

    # @return [Hash{Symbol => Object}] all fields, ready for JSON
    def to_h
      self.class.fields.each_with_object({}) do |field, hash|
        value = @values[field.name]
        hash[field.name] = field.give(value) unless value.nil? && field.sparse
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
    def hash = [self.class, @values].hash

    # @return [String] numbers and names; the sizes of lists and Hashes; no nested records
    def inspect
      shown = shown_values.map do |name, value|
        "#{name}=#{value.respond_to?(:each) ? "(#{value.size})" : value.inspect}"
      end
      "#<#{[self.class.name, *shown].join(' ')}>"
    end

    protected

    attr_reader :values

    private

    # The same record with other values, which must be frozen.
    def changed(**values) = self.class.send(:new, { **@values, **values })

    def shown_values
      @values.slice(*self.class.fields.map(&:name)).reject { |_name, value| value.nil? || value.is_a?(Record) }
    end
  end

  # Finds a part by its id, in whatever has `parts`.
  module Lookup
    # @param id [Symbol, Integer]
    # @return [Record]
    # @raise [KeyError] naming the existing ids
    def [](id)
      part(id) or
        raise KeyError.new("no #{Field.excerpt(id)} here; there are: #{ids}", receiver: self, key: id)
    end

    # @api private
    # @param id [Symbol, Integer]
    # @return [Record, nil]
    def part(id) = parts.find { |part| part.id == id }

    # @param id [Symbol, Integer]
    # @param deeper [Array<Symbol, Integer>] ids below it
    # @return [Record]
    # @raise [KeyError] naming the existing ids
    def dig(id, *deeper) = deeper.empty? ? self[id] : self[id].dig(*deeper)

    private

    def ids = parts.empty? ? "none" : parts.map { |part| part.id.inspect }.join(", ")
  end

  # The monotonic clock, and the time of day.
  #
  # @api private
  module Clock
    # @param unit [Symbol] as for Process.clock_gettime
    # @return [Float, Integer]
    def self.now(unit = :float_second) = Process.clock_gettime(Process::CLOCK_MONOTONIC, unit)

    # @return [Integer] milliseconds since 1970
    def self.time = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)

    # @return [Float] CPU time of this thread, in seconds
    def self.cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  end

  # What a reading cost.
  #
  # Tiers: T0 a few µs; T1 under 1 ms; T2 tens of milliseconds per GB, more where it looks at blocks or objects; T3 the
  # duration of the levers of a purge, or of a walk of all objects.
  class Cost < Record
    # @return [Symbol] :T0, :T1, :T2 or :T3
    field :tier, :symbol, null: false, one_of: %i[T0 T1 T2 T3]
    # @return [Integer] duration in microseconds
    field :wall_us, :count, null: false
    # @return [Integer] the part of that duration during which the reading held the GVL, in microseconds
    field :gvl_us, :count, null: false
    # @return [Integer] scratch memory that the reading used
    field :scratch_bytes, :bytes, null: false

    # @api private
    # @return [Integer] microseconds of the monotonic clock
    def self.now = Clock.now(:microsecond)

    # @api private
    # @param tier [Symbol]
    # @param wall_us [Integer] duration in Ruby, which holds the GVL
    # @return [Hash{Symbol => Object}] the body of a Cost
    def self.of(tier, wall_us = 0) = { tier: tier, wall_us: wall_us, gvl_us: wall_us, scratch_bytes: 0 }

    # @api private
    # @param costs [Array<Cost>] of readings that were taken one after the other
    # @return [Hash{Symbol => Object}] the body of their total Cost: times are summed; tier and scratch memory are the
    #   highest
    def self.sum(costs)
      { tier: costs.map(&:tier).max, wall_us: costs.sum(&:wall_us), gvl_us: costs.sum(&:gvl_us),
        scratch_bytes: costs.map(&:scratch_bytes).max }
    end
  end

  # Identifies the process of a reading within one boot of one machine. A pid alone does not: the kernel reuses pids,
  # and the same pid means a different process in each container.
  class ProcessIdentity < Record
    # @return [String, nil] identifies this boot of the kernel (/proc/sys/kernel/random/boot_id)
    field :boot_id, :string
    # @return [Integer, nil] inode of the process's pid namespace (/proc/self/ns/pid)
    field :pid_namespace, :count
    # @return [Integer, nil] start time of the process in clock ticks since boot (/proc/self/stat)
    field :started, :count

    class << self
      # The identity of this process, read once in each process. Safe in a trap handler.
      #
      # @api private
      # @return [ProcessIdentity]
      def current
        pid, identity = @current
        return identity if pid == Process.pid

        (@current = [Process.pid, read].freeze).last
      end

      # @api private
      # @param pid [Integer] of another process, in this process's pid namespace
      # @return [ProcessIdentity]
      def of(pid) = capture({ **current.to_h, started: started(pid) })

      private

      def read
        capture({ boot_id: known { File.read("/proc/sys/kernel/random/boot_id").strip },
                  pid_namespace: known { File.readlink("/proc/self/ns/pid")[/\d+/]&.to_i }, started: started("self") })
      end

      def started(pid) = known { File.read("/proc/#{pid}/stat").rpartition(")").last.split[19]&.to_i }

      # Returns nil if the block cannot read its file, as on a system without /proc.
      def known
        yield
      rescue SystemCallError
        nil
      end
    end

    # @param other [ProcessIdentity]
    # @return [Boolean] whether both are in the same pid namespace of the same boot, as far as that is known: only then
    #   can their pids be compared
    def same_machine?(other) = agree?(other, :boot_id, :pid_namespace)

    # @param other [ProcessIdentity]
    # @return [Boolean] whether both can be the same process, provided that their pids are equal too
    def same?(other) = same_machine?(other) && agree?(other, :started)

    private

    # A value that one of the two identities lacks counts as equal.
    def agree?(other, *names)
      names.all? { |name| [public_send(name), other.public_send(name)].then { |a, b| a.nil? || b.nil? || a == b } }
    end
  end

  # The base of everything that memscope reads: a Record in an envelope with its kind, versions, process and time. A
  # subclass declares its own fields with `field`; `reasons` and `cost` follow them.
  #
  # A field that is a counter (a total that only grows) is declared with `counters: true`; a Hash that holds counters,
  # with their keys (`counters: %i[count time]`). All other numbers are gauges.
  class Reading < Record
    # The versions of `to_h`'s layout that `from_h` understands.
    SCHEMAS = [1].freeze

    # @return [String] version of memscope
    field :memscope, :string, null: false
    # @return [String] version of Ruby in the process
    field :ruby, :string, null: false
    # @return [Integer] process ID
    field :pid, :count, null: false
    # @return [Time] UTC, to the millisecond
    field :at, :time, null: false
    # @return [ProcessIdentity, nil] nil in JSON from a memscope that did not write this field
    field :process, ProcessIdentity, sparse: true
    # @return [Hash{Symbol => String}] why a value is nil, missing or approximate
    field :reasons, :sentences, null: false
    # @return [Cost]
    field :cost, :cost, null: false

    ENVELOPE = own_fields.first(5).freeze
    CLOSING = own_fields.last(2).freeze
    private_constant :ENVELOPE, :CLOSING

    # A method below builds the cost on demand.
    remove_method :cost

    class << self
      # @return [Array<Field>] the fields of the envelope, then the class's own, then reasons and cost
      def fields = @fields ||= [*ENVELOPE, *own_fields, *CLOSING].freeze

      # @return [String] "process_memory" for ProcessMemory
      def kind = @kind ||= name.split("::").last.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.freeze

      # Builds a reading from its JSON.
      #
      # @param json [String] from `to_json`
      # @raise [ArgumentError] if it is not JSON, is truncated, or is a reading of another kind
      def from_json(json)
        require "json"
        Field.refuse("#{name}.from_json: json", json, "a String") unless json.is_a?(String)
        from_h(JSON.parse(Field.utf8(json)))
      rescue JSON::ParserError # its message quotes the text, which may be from any file
        raise ArgumentError, "#{name}.from_json: json: given #{json.bytesize} bytes of invalid or truncated JSON, " \
                             "allowed: the text of to_json"
      end

      # @return [Array<Symbol>] names of the fields outside the envelope
      def body_names = [*own_fields, *CLOSING].map(&:name)

      # Puts a body from the extension into an envelope of this process and moment, or into that of another reading.
      #
      # @param body [Hash{Symbol => Object}] the fields, :reasons (as Reasons.sentences takes them) and :cost; becomes
      #   part of the reading
      # @param envelope [Hash{Symbol => Object}, nil]
      def capture(body, envelope = nil)
        body[:cost].freeze
        body[:reasons] = Reasons.sentences(body[:reasons])
        super(envelope ? body.update(envelope) : stamped(body))
      end

      # Checks a Boolean argument of `read`, and so of the method of Memscope that calls `read`.
      #
      # @api private
      # @param name [Symbol] the name of the argument
      # @param call [String, nil] the name of the method of Memscope, if it differs from the kind
      # @return [Boolean] the value
      # @raise [ArgumentError] unless it is true or false
      def check_switch(name, value, call: nil)
        return value if value.equal?(true) || value.equal?(false)

        Field.refuse("Memscope.#{call || kind}: #{name}", value, "true, false")
      end

      private

      def stamped(body)
        body[:memscope] = VERSION
        body[:ruby] = RUBY_VERSION
        body[:pid] = Process.pid
        body[:at] = Clock.time
        body[:process] = ProcessIdentity.current
        body
      end
    end

    # @return [String] "ledger", "allocator", …
    def kind = self.class.kind

    def cost = Cost.capture(@values[:cost])

    # @return [Hash{Symbol => Object}] schema, kind, envelope, fields, reasons and cost; ready for JSON
    def to_h = { schema: SCHEMAS.last, kind: self.class.kind, **super }

    # @return [Hash{Symbol => Object}] `to_h` without the envelope
    def body = to_h.slice(*self.class.body_names)

    # @api private
    # @return [Boolean] whether anything could be read; by default, whether the RSS could (some kinds of reading
    #   override this)
    def known? = !rss_bytes.nil?

    # @api private
    # @return [Hash{Symbol => Object}] the envelope, for another reading of the same moment
    def envelope = @values.slice(*ENVELOPE.map(&:name))

    # What changed since an earlier reading. Loads memscope/diff when first used.
    #
    # @param other [Reading] the earlier one
    # @return [Diff]
    # @raise [TypeError] for a reading of another kind
    def -(other) = Loading.unit(:Diff).between(of_this_kind(other), self)

    # Loads memscope/report when first used.
    #
    # @param options [Hash] those of the report for this kind of reading; `unicode: false` for plain ASCII, the default
    #   if the locale is not UTF-8
    # @return [String] text for people, 80 columns; `inspect` for a kind that has no report
    def to_s(**options)
      Loading.whole { require_relative "report" }
      Report.render(self, unicode: Encoding.default_external == Encoding::UTF_8, **options)
    end

    private

    def of_this_kind(other)
      return other if other.instance_of?(self.class)

      raise TypeError, "#{self.class} - #{other.class}: only readings of one kind can be subtracted"
    end

    def shown_values = { **super.except(:memscope, :ruby, :cost), at: at }
  end
end
