# frozen_string_literal: true

require_relative "types"

module Memscope
  class Configuration
    # One setting as data: its type, its default, the environment variable that sets it, and its meaning.
    class Setting
      # @return [Symbol]
      attr_reader :name
      # @return [Object]
      attr_reader :default
      # @return [Object] its value where the variable is wrong and the process continues: the one that allows least
      attr_reader :safe
      # @return [String, nil] the environment variable; nil where only code can set it
      attr_reader :variable
      # @return [String] its meaning, in whole sentences
      attr_reader :sentence
      # @return [String] code that sets it
      attr_reader :example

      # @param type [Type]
      # @param safe [Object]
      # @param secret [Boolean] whether its value must not be shown
      def initialize(name, type, default:, variable:, sentence:, example:, safe: default, secret: false)
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
      # @raise [ArgumentError]
      def check(value)
        taken = @type.accept.call(value)
        return taken unless Types::WRONG.equal?(taken)

        raise ArgumentError, "Memscope.configure: #{name}: given #{given(value)}, allowed: #{allowed}"
      end

      # @param environment [Hash{String => String}, ENV]
      # @return [Array(Object, String)] the value (the default where the variable is not set or empty, `safe` where it
      #   is wrong), and what is wrong with the variable, or nil
      def read(environment)
        text = environment[variable] if variable
        return [default, nil] if text.nil? || text.empty?

        value = @type.parse.call(text)
        return [value, nil] unless Types::WRONG.equal?(value)

        [safe, "#{variable}: given #{given(text)}, allowed: #{allowed_in_environment}"]
      end

      # @param value [Object] of this setting
      # @return [String] for people
      def show(value) = @secret && value ? "(secret)" : value.inspect

      private

      def given(value) = @secret ? "a secret #{value.class}" : value.inspect[0, 200]
    end

    # Every setting, by name, in the order in which they are documented.
    SETTINGS = [
      Setting.new(
        :listen, Types::SWITCH_OR_PATH,
        default: false, safe: false, variable: "MEMSCOPE_LISTEN", example: "true",
        sentence: "Whether this process answers `memscope report --pid`, `doctor`, `purge`, `top` and `ps` on a Unix " \
                  "socket, which only its own user and root can open. A path is that of the socket, where it is not " \
                  "to be in `socket_directory`. With `plugin :memscope` Puma's master and workers have such sockets " \
                  "in any case: it is how workers ask their master, and how a purge reaches them."
      ),
      Setting.new(
        :socket_directory, Types::PATH,
        default: nil, variable: "MEMSCOPE_SOCKET_DIRECTORY",
        example: '"/run/app/memscope"',
        sentence: "Where the sockets are: a directory of this process's user, with mode 0700. By default it is " \
                  "`$XDG_RUNTIME_DIR/memscope`, or `memscope-UID` in the directory for temporary files."
      ),
      Setting.new(
        :username, Types.text(without: ":"),
        default: nil, safe: "", variable: "MEMSCOPE_USERNAME", example: '"memory"',
        sentence: "Opens Memscope::Web to this name and `password` (HTTP basic authentication). Without both, and " \
                  "without `authorize`, it is closed, except under Rails in development and test to a browser on the " \
                  "same machine."
      ),
      Setting.new(
        :password, Types.text,
        default: nil, safe: "", variable: "MEMSCOPE_PASSWORD", secret: true,
        example: 'ENV.fetch("MEMORY_PASSWORD")',
        sentence: "The password that goes with `username`."
      ),
      Setting.new(
        :authorize, Types.responding(:call, allowed: "nil, an object that responds to call, such as a lambda"),
        default: nil, variable: nil, example: '->(request) { request.env["warden"]&.user&.admin? }',
        sentence: "Decides on access instead of `username` and `password`: it is called with the Rack::Request, and " \
                  "allows it by returning anything but nil or false."
      ),
      Setting.new(
        :actions, Types::SWITCH,
        default: true, safe: false, variable: "MEMSCOPE_ACTIONS", example: "false",
        sentence: "Whether users of Memscope::Web and of the socket can return memory with a purge. Where it is " \
                  "false they can only read."
      ),
      Setting.new(
        :worker_interval_seconds, Types.seconds(1..3600),
        default: 10, variable: "MEMSCOPE_WORKER_INTERVAL",
        example: "30",
        sentence: "How often each worker of Puma reports its memory to the master, with `plugin :memscope`."
      ),
      Setting.new(
        :metrics_ledger_interval_seconds, Types.seconds(1..86_400, optional: true),
        default: nil,
        variable: "MEMSCOPE_METRICS_LEDGER_INTERVAL", example: "60",
        sentence: "The least time between two ledgers that are read for the metrics: each takes milliseconds for " \
                  "each gigabyte. Where it is nil none is read, and the families of the ledger are not exported."
      ),
      Setting.new(
        :metrics_arenas, Types::SWITCH,
        default: false, variable: "MEMSCOPE_METRICS_ARENAS", example: "true",
        sentence: "Whether the metrics have a sample for each arena of the allocator."
      ),
      Setting.new(
        :background_thread, Types::SWITCH,
        default: false, variable: "MEMSCOPE_BACKGROUND_THREAD", example: "true",
        sentence: "Whether jemalloc's background threads are turned on again in each forked worker of Puma: a fork " \
                  "stops them."
      ),
      Setting.new(
        :logger, Types.responding(:info, :warn, allowed: "nil, an object that responds to info and warn"),
        default: nil, variable: nil, example: "Logger.new($stderr)",
        sentence: "Where memscope logs, for example why a request was refused. Where it is nil that is " \
                  "`Rails.logger`, or nothing without Rails."
      )
    ].to_h { |setting| [setting.name, setting] }.freeze
  end
end
