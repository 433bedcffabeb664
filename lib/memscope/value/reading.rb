# frozen_string_literal: true

require_relative "record"
require_relative "own_ruby"
require_relative "../version"

module Memscope
  Record.declare(__FILE__)

  # The extension's methods, most of which return the body of one reading, and the facts of OwnRuby. Only this file
  # loads the extension. If it cannot be loaded, the same methods return the values that Ruby alone knows, with the
  # reason why the rest is missing. A reading of another process comes from an object with the same methods (`native:`).
  # @api private
  module Native
    extend OwnRuby

    # A binary gem has an extension for each Ruby.
    own = File.join(File.dirname(__dir__), RUBY_VERSION[/\A\d+\.\d+/], "memscope.so")
    begin
      require File.exist?(own) ? own : "memscope/memscope.so"
    rescue LoadError => e
      require_relative "native/absent"
      extend Absent

      @absence = Absent.reason(e).freeze
      Memscope.define_singleton_method(:rss) { nil }
    end

    # @return [String, nil] why the extension is not loaded, or nil if it is
    def self.absence = @absence
  end
  private_constant :Native

  # The monotonic clock, and the time of day.
  # @api private
  module Clock
    def self.now(unit = :float_second) = Process.clock_gettime(Process::CLOCK_MONOTONIC, unit)

    # @return [Float] seconds since the machine booted, including those in which it was suspended
    def self.boot = Process.clock_gettime(Process::CLOCK_BOOTTIME)

    # @return [Integer] milliseconds since 1970
    def self.time = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)

    # @return [String] that time, or the given one, as in JSON
    def self.text(milliseconds = time) = Field.time(milliseconds).strftime(Field::TIME)

    # @return [Float] CPU time of this thread, in seconds
    def self.cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  end

  # What a system call tells, if it can.
  # @api private
  module SystemCall
    # @return [Object, nil] the block's value, nil if a system call in it fails
    def self.attempt
      yield
    rescue SystemCallError
      nil
    end
  end

  # The cost of a reading.
  #
  # Tiers: T0 a few µs; T1 under 1 ms; T2 tens of milliseconds per GB, more where it looks at blocks or objects; T3 the
  # duration of the levers of a purge, or of a walk of all objects.
  class Cost < Record
    # In microseconds of the monotonic clock.
    # @api private
    def self.now = Clock.now(:microsecond)

    # The body of a Cost, for a duration in Ruby, which holds the GVL.
    # @api private
    def self.of(tier, wall_us = 0) = { tier: tier, wall_us: wall_us, gvl_us: wall_us, scratch_bytes: 0 }

    # The body of the total Cost of successive readings: times are summed, tier and scratch memory are the highest.
    # @api private
    def self.sum(costs)
      { tier: costs.map(&:tier).max, wall_us: costs.sum(&:wall_us), gvl_us: costs.sum(&:gvl_us),
        scratch_bytes: costs.map(&:scratch_bytes).max }
    end
  end

  # Identifies the process of a reading within one boot of one machine. A pid alone does not: the kernel reuses pids,
  # and the same pid means a different process in each container.
  class ProcessIdentity < Record
    class << self
      # The identity of this process, read once in each process. Safe in a trap handler.
      # @api private
      def current
        pid, identity = @current
        return identity if pid == Process.pid

        (@current = [Process.pid, read].freeze).last
      end

      # Of another process, in this process's pid namespace.
      # @api private
      def of(pid) = capture({ **current.to_h, started: started(pid) })

      # @api private
      # @return [Array<String>] its fields after the program's name, which may contain spaces and parentheses: state,
      #   ppid, …; none if it cannot be read
      def stat(path) = SystemCall.attempt { File.read(path) }.to_s.rpartition(")").last.split

      private

      def read
        capture({ boot_id: SystemCall.attempt { File.read("/proc/sys/kernel/random/boot_id").strip },
                  pid_namespace: SystemCall.attempt { File.readlink("/proc/self/ns/pid")[/\d+/]&.to_i },
                  started: started("self") })
      end

      def started(pid) = stat("/proc/#{pid}/stat")[19]&.to_i
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
  # subclass declares its own fields with `field`. `reasons` and `cost` follow them.
  #
  # A field that is a counter (a total that only grows) is declared with `counters: true`, a Hash that holds counters,
  # with their keys (`counters: %i[count time]`). All other numbers are gauges.
  class Reading < Record
    # The versions of `to_h`'s layout that `from_h` understands.
    SCHEMAS = [1].freeze

    ENVELOPE = own_fields.first(5).freeze
    CLOSING = own_fields.last(2).freeze
    private_constant :ENVELOPE, :CLOSING

    class << self
      # @return [Array<Field>] the fields of the envelope, then the class's own, then reasons and cost
      def fields = @fields ||= [*ENVELOPE, *own_fields, *CLOSING].freeze

      # @return [String] "process_memory" for ProcessMemory
      def kind = @kind ||= name.split("::").last.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.freeze

      # Builds a reading from its JSON.
      #
      # @param json [String] from `to_json`
      # @raise [Invalid] if it is not JSON, is truncated, or is a reading of another kind
      def from_json(json)
        require "json"
        Field.refuse("json", json, "a String", call: "#{name}.from_json") unless json.is_a?(String)
        from_h(JSON.parse(Field.utf8(json)))
      rescue JSON::ParserError # its message quotes the text, which may be from any file
        given = "#{json.bytesize} bytes of invalid or truncated JSON"
        raise Invalid.new("json", given, "the text of to_json", call: "#{name}.from_json")
      end

      # @return [Array<Symbol>] names of the fields outside the envelope
      def body_names = [*own_fields, *CLOSING].map(&:name)

      # Puts a body from the extension into an envelope of this process and moment, or into that of another reading.
      #
      # @param body [Hash{Symbol => Object}] the fields, :reasons (as Reasons.sentences takes them) and :cost; and the
      #   envelope, if it comes from another process
      # @param envelope [Hash{Symbol => Object}, nil]
      def capture(body, envelope = nil)
        super({ **(envelope || stamp), **body, reasons: Reasons.sentences(body[:reasons]) })
      end

      # Checks the schema and the kind of a reading. A nested reading that shares the outer envelope is written without
      # an envelope.
      # @api private
      # @return [Hash{Symbol => Object}] the reading without its schema and kind; nested readings have envelopes
      def unwrapped(given, where)
        check_schema(given[:schema], [where, :schema])
        Loader.refuse([where, :kind], given[:kind], kind) unless given[:kind] == kind
        envelope = given.slice(:schema, *ENVELOPE.map(&:name))
        own_fields.each do |field|
          name, type = field.to_a
          next unless type.is_a?(Class) && type < Reading && given[name].is_a?(Hash)

          given[name] = { **envelope, kind: type.kind, **Loader.keyed(given[name], [where, name], type).compact }
        end
        given.except(:schema, :kind)
      end

      # Checks a Boolean argument of `read`, and so of the method of Memscope that calls `read`.
      # @api private
      # @raise [Invalid] unless it is true or false
      def check_switch(name, value, call: nil)
        return value if value.equal?(true) || value.equal?(false) # a snapshot allocates nothing

        Field.choice(name, value, [true, false], call: "Memscope.#{call || kind}")
      end

      private

      def check_schema(schema, where)
        return if SCHEMAS.include?(schema)

        newer = "; a newer memscope wrote this" if schema.is_a?(Integer) && schema > SCHEMAS.max
        Loader.refuse(where, schema, "#{SCHEMAS.join(', ')}, which is all that " \
                                     "memscope #{VERSION} knows#{newer}")
      end

      def stamp
        { memscope: VERSION, ruby: RUBY_VERSION, pid: Process.pid, at: Clock.time, process: ProcessIdentity.current }
      end
    end

    # @return [String] "ledger", "allocator", …
    def kind = self.class.kind

    # @return [Hash{Symbol => Object}] schema, kind, envelope, fields, reasons and cost, ready for JSON
    def to_h = { schema: SCHEMAS.last, kind: self.class.kind, **super }

    # @return [Hash{Symbol => Object}] `to_h` without the envelope
    def body = to_h.slice(*self.class.body_names)

    # @api private
    # @return [Boolean] whether anything could be read. By default, whether the RSS could (some kinds of reading
    #   override this)
    def known? = !rss_bytes.nil?

    # @api private
    # @return [Hash{Symbol => Object}] the envelope, for another reading of the same moment
    def envelope = values.slice(*ENVELOPE.map(&:name))

    private

    def of_this_kind(other)
      return other if other.instance_of?(self.class)

      raise TypeError, "#{self.class} - #{other.class}: only readings of one kind can be subtracted"
    end

    def shown_values = { **super.except(:memscope, :ruby, :cost), at: at }
  end

  # A reading that lists one kind of record, and is Enumerable over them.
  module Collection
    include Enumerable

    # @yield [Record] each, in the list's order
    # @return [Enumerator<Record>, self] an Enumerator if no block is given
    def each(&block)
      return enum_for(:each) { parts.size } unless block

      parts.each(&block)
      self
    end

    # @return [Hash{Symbol => Object}] as for every reading. Enumerable's would need pairs
    def to_h = Reading.instance_method(:to_h).bind_call(self)
  end
end
