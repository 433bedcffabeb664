# frozen_string_literal: true

module Memscope
  class Configuration
    # The values that a setting allows. `accept` takes a value from code, `parse` the text of an environment variable,
    # which is never empty; both return the value as the configuration holds it, frozen, or WRONG.
    #
    # @api private
    Type = Struct.new(:allowed, :allowed_in_environment, :accept, :parse)

    # @api private
    module Types
      WRONG = Object.new.freeze
      # Spellings of a switch in the environment, in upper or lower case.
      WORDS = { "1" => true, "true" => true, "on" => true, "yes" => true,
                "0" => false, "false" => false, "off" => false, "no" => false }.freeze
      # A number in the environment.
      SECONDS = /\A\d{1,9}(\.\d{1,9})?\z/

      SWITCH = Type.new("true, false", WORDS.keys.join(", "),
                        ->(value) { [true, false].include?(value) ? value : WRONG },
                        ->(text) { WORDS.fetch(text.b.downcase, WRONG) }).freeze

      # Paths are absolute, because the process may change its directory.
      ACCEPT_PATH = lambda do |value|
        path = value.respond_to?(:to_path) ? value.to_path : value
        return path if path.nil?

        fits = path.is_a?(String) && path.encoding.ascii_compatible? && path.start_with?("/") && !path.b.include?("\0")
        fits ? String.new(path).freeze : WRONG
      end
      private_constant :WORDS, :SECONDS, :ACCEPT_PATH

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

      # ActiveSupport's durations count as Numeric, too.
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

      # @param names [Array<Symbol>]
      # @return [Type] one of them
      def one_of(*names)
        Type.new(names.map(&:inspect).join(", "), names.join(", "),
                 ->(value) { names.include?(value) ? value : WRONG },
                 ->(text) { names.find { |name| name.name == text.b.downcase } || WRONG })
      end

      # @param range [Range<Numeric>]
      # @return [Type] a number
      def number(range)
        accept = ->(value) { value.is_a?(Numeric) && value.real? && range.cover?(value.to_f) ? value.to_f : WRONG }
        allowed = "a number from #{range.begin} to #{range.end}"
        Type.new(allowed, allowed, accept, ->(text) { text.b.match?(SECONDS) ? accept.call(text.to_f) : WRONG })
      end

      # @return [Type] an object that responds to all of the methods, or nil; only code can set it
      def responding(*methods, allowed:)
        accept = ->(value) { value.nil? || methods.all? { |name| value.respond_to?(name) } ? value : WRONG }
        Type.new(allowed, nil, accept, nil)
      end
    end

    # One setting as data: its type, its default, the environment variable that sets it, and its meaning.
    class Setting
      # @!attribute [r] name
      #   @return [Symbol]
      # @!attribute [r] default
      #   @return [Object]
      # @!attribute [r] safe
      #   @return [Object] the least permissive value, for a process that continues although the variable is wrong
      # @!attribute [r] variable
      #   @return [String, nil] the environment variable; nil if only code can set it
      # @!attribute [r] sentence
      #   @return [String] its meaning, in whole sentences
      # @!attribute [r] example
      #   @return [String] code that sets it
      attr_reader :name, :default, :safe, :variable, :sentence, :example

      # @param type [Type]
      # @param safe [Object]
      # @param secret [Boolean] whether its value must not be shown
      def initialize(name, type:, sentence:, example:, default: nil, variable: nil, safe: default, secret: false)
        @name = name
        @type = type
        @default = default
        @safe = safe
        @variable = variable
        @sentence = sentence
        @example = example
        @secret = secret
        freeze
      end

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

        value = @type.parse.call(text)
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
      listen: {
        type: Types::SWITCH_OR_PATH, default: false, safe: false, variable: "MEMSCOPE_LISTEN", example: "true",
        sentence: "Whether this process answers, on a Unix socket that only its own " \
                  "user and root can open, memscope's commands that take `--pid`. A " \
                  "path places the socket outside of `socket_directory`. With " \
                  "`plugin :memscope`, Puma and what it forks always have such " \
                  "sockets: workers ask their master over them, and a purge reaches " \
                  "each worker."
      },
      socket_directory: {
        type: Types::PATH, variable: "MEMSCOPE_SOCKET_DIRECTORY", example: '"/run/app/memscope"',
        sentence: "The directory of the sockets, owned by this process's user, with " \
                  "mode 0700. By default it is `$XDG_RUNTIME_DIR/memscope`, or " \
                  "`memscope-UID` in the directory for temporary files."
      },
      username: {
        type: Types.text(without: ":"), safe: "", variable: "MEMSCOPE_USERNAME", example: '"memory"',
        sentence: "Opens Memscope::Web to this name and `password` (HTTP basic " \
                  "authentication). Without both, and without `authorize`, " \
                  "Memscope::Web is closed, except to a browser on the same machine " \
                  "under Rails in development and test."
      },
      password: {
        type: Types.text, safe: "", variable: "MEMSCOPE_PASSWORD", secret: true,
        example: 'ENV.fetch("MEMORY_PASSWORD")',
        sentence: "The password that goes with `username`."
      },
      authorize: {
        type: Types.responding(:call, allowed: "nil, an object that responds to call, such as a lambda"),
        example: '->(request) { request.env["warden"]&.user&.admin? }',
        sentence: "An object that decides on access instead of `username` and " \
                  "`password`. It is called with the Rack::Request and allows the " \
                  "request by returning anything but nil or false."
      },
      actions: {
        type: Types::SWITCH, default: true, safe: false, variable: "MEMSCOPE_ACTIONS", example: "false",
        sentence: "Whether users of Memscope::Web and of the socket can return " \
                  "memory with a purge, collect garbage, write a heap dump, and " \
                  "start or stop a profile. If false, they can only read."
      },
      worker_interval_seconds: {
        type: Types.seconds(1..3600), default: 10, variable: "MEMSCOPE_WORKER_INTERVAL", example: "30",
        sentence: "How often each worker of Puma reports its memory to the master, " \
                  "with `plugin :memscope`."
      },
      metrics_ledger_interval_seconds: {
        type: Types.seconds(1..86_400, optional: true), variable: "MEMSCOPE_METRICS_LEDGER_INTERVAL", example: "60",
        sentence: "The least time between two ledger readings for the metrics, each " \
                  "of which takes tens of milliseconds per gigabyte. If nil, no " \
                  "ledger is read, and its families are not exported."
      },
      metrics_arenas: {
        type: Types::SWITCH, default: false, variable: "MEMSCOPE_METRICS_ARENAS", example: "true",
        sentence: "Whether the metrics have a sample for each arena of the allocator."
      },
      metrics_objects: {
        type: Types::SWITCH, default: false, variable: "MEMSCOPE_METRICS_OBJECTS", example: "true",
        sentence: "Whether the metrics count the objects of the classes with the " \
                  "most memory, by a census at most once in " \
                  "`metrics_ledger_interval_seconds`, or once a minute if that is " \
                  "nil. Puma's workers are not counted."
      },
      objects_profile: {
        type: Types::SWITCH, default: false, variable: "MEMSCOPE_OBJECTS_PROFILE", example: "true",
        sentence: "Whether a profile of Ruby's objects runs for as long as the " \
                  "process, at one percent of its CPU time. For lines that keep " \
                  "growing, it finds what holds their objects, by a heap graph in a " \
                  "forked child, at most every ten minutes. Forked workers continue " \
                  "the profile; a process that creates a Ractor ends it. Before Ruby " \
                  "3.3, the profile also makes allocation slower, by a third where a " \
                  "program does nothing else. Without Rails, only the environment " \
                  "variable starts it."
      },
      history: {
        type: Types::SWITCH, default: true, variable: "MEMSCOPE_HISTORY", example: "false",
        sentence: "Whether Rails, Puma's master and workers (with `plugin " \
                  ":memscope`) and a process that has called " \
                  "`Memscope::Workers.watch`, such as Sidekiq's, keep the history of " \
                  "their memory, which `Memscope.history` returns: by a thread that " \
                  "uses at most a thousandth of a core, in 380 KiB. In any other " \
                  "process, only the environment variable starts it."
      },
      policy: {
        type: Types.one_of(:off, :observe, :act), default: :off, variable: "MEMSCOPE_POLICY", example: ":observe",
        sentence: "Whether Puma's master (with `plugin :memscope`) and a process " \
                  "that has called `Memscope::Workers.watch`, such as Sidekiq's, " \
                  "look once a minute at how near their memory is to the container's " \
                  "limit, and decide whether to purge a worker or to restart one. " \
                  "With `:observe` they log what they would do; with `:act` they do " \
                  "it. In Puma's master, which does not always load the application, " \
                  "only the environment variable is sure to be seen. With a " \
                  "`worker_interval_seconds` above 60 they look only that often, and " \
                  "above 150 they do nothing."
      },
      policy_soft: {
        type: Types.number(0.1..1), default: 0.8, variable: "MEMSCOPE_POLICY_SOFT", example: "0.75",
        sentence: "The share of the container's memory limit above which the policy " \
                  "does something, if it lasts five minutes. Above 0.95, or this " \
                  "share if it is larger, a restart comes first."
      },
      policy_interval_seconds: {
        type: Types.seconds(1..604_800), default: 900, variable: "MEMSCOPE_POLICY_INTERVAL", example: "1800",
        sentence: "The least time between two restarts of workers. Above 0.95 of the " \
                  "limit it is 300 s, unless this is less. The policy makes either " \
                  "up to a fifth longer."
      },
      policy_min_uptime_seconds: {
        type: Types.seconds(0..604_800), default: 1800, variable: "MEMSCOPE_POLICY_MIN_UPTIME", example: "3600",
        sentence: "The shortest time that a worker must have run before the policy " \
                  "restarts it. If the limit is about to be reached, and the last " \
                  "restart was at least this long ago, 600 s are enough for one worker."
      },
      policy_supervised: {
        type: Types::SWITCH, default: false, variable: "MEMSCOPE_POLICY_SUPERVISED", example: "true",
        sentence: "Whether something, such as systemd or Kubernetes, starts this " \
                  "process again when it ends with success, so that the policy may " \
                  "restart it. Puma's workers need no setting: their master starts " \
                  "them again."
      },
      background_thread: {
        type: Types::SWITCH, default: false, variable: "MEMSCOPE_BACKGROUND_THREAD", example: "true",
        sentence: "Whether each forked worker of Puma turns on jemalloc's background " \
                  "threads again: a fork stops them."
      },
      logger: {
        type: Types.responding(:info, :warn, allowed: "nil, an object that responds to info and warn"),
        example: "Logger.new($stderr)",
        sentence: "Where memscope logs, for example why a request was refused. If " \
                  "nil, `Rails.logger`, or nothing without Rails; the policy's " \
                  "decisions then go to the log of Puma or Sidekiq."
      }
    }.to_h { |name, options| [name, Setting.new(name, **options)] }.freeze
  end
end
