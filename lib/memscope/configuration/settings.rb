# frozen_string_literal: true

require_relative "setting"

module Memscope
  class Configuration
    # Every setting, by name, in the order in which they are documented.
    SETTINGS = [
      Setting.new(
        :listen, Types::SwitchOrPath.new,
        default: false, safe: false, variable: "MEMSCOPE_LISTEN", example: "true",
        sentence: "Whether this process answers `memscope report --pid`, `doctor`, `purge`, `top` and `ps` on a Unix " \
                  "socket, which only its own user and root can open. A path is that of the socket, where it is not " \
                  "to be in `socket_directory`. With `plugin :memscope` Puma's master and workers have such sockets " \
                  "in any case: it is how workers ask their master, and how a purge reaches them."
      ),
      Setting.new(
        :socket_directory, Types::Path.new,
        default: nil, variable: "MEMSCOPE_SOCKET_DIRECTORY",
        example: '"/run/app/memscope"',
        sentence: "Where the sockets are: a directory of this process's user, with mode 0700. By default it is " \
                  "`$XDG_RUNTIME_DIR/memscope`, or `memscope-UID` in the directory for temporary files."
      ),
      Setting.new(
        :username, Types::Text.new(without: ":"),
        default: nil, safe: "", variable: "MEMSCOPE_USERNAME", example: '"memory"',
        sentence: "Opens Memscope::Web to whoever gives this name and `password` (HTTP basic authentication). " \
                  "Without both, and without `authorize`, it is closed, except under Rails in development and test to a " \
                  "browser on the same machine."
      ),
      Setting.new(
        :password, Types::Text.new,
        default: nil, safe: "", variable: "MEMSCOPE_PASSWORD", secret: true,
        example: 'ENV.fetch("MEMORY_PASSWORD")',
        sentence: "The password that goes with `username`."
      ),
      Setting.new(
        :authorize, Types::Responding.new(:call, allowed: "nil, an object that responds to call, such as a lambda"),
        default: nil, variable: nil, example: '->(request) { request.env["warden"]&.user&.admin? }',
        sentence: "Decides instead of `username` and `password` who gets in: it is called with the Rack::Request, " \
                  "and lets it in when it returns anything but nil or false."
      ),
      Setting.new(
        :actions, Types::Switch.new,
        default: true, safe: false, variable: "MEMSCOPE_ACTIONS", example: "false",
        sentence: "Whether those whom Memscope::Web and the socket let in can give memory back with a purge. Where " \
                  "it is false they can only look."
      ),
      Setting.new(
        :worker_interval_seconds, Types::Seconds.new(1..3600),
        default: 10, variable: "MEMSCOPE_WORKER_INTERVAL",
        example: "30",
        sentence: "How often each worker of Puma tells its memory to the master, with `plugin :memscope`."
      ),
      Setting.new(
        :metrics_ledger_interval_seconds, Types::Seconds.new(1..86_400, optional: true),
        default: nil,
        variable: "MEMSCOPE_METRICS_LEDGER_INTERVAL", example: "60",
        sentence: "How often at most the ledger is read for the metrics: a reading takes milliseconds for each " \
                  "gigabyte. Where it is nil none is read, and the families of the ledger are not exported."
      ),
      Setting.new(
        :metrics_arenas, Types::Switch.new,
        default: false, variable: "MEMSCOPE_METRICS_ARENAS", example: "true",
        sentence: "Whether the metrics have a sample for each arena of the allocator."
      ),
      Setting.new(
        :background_thread, Types::Switch.new,
        default: false, variable: "MEMSCOPE_BACKGROUND_THREAD", example: "true",
        sentence: "Whether jemalloc's background threads are turned on again in each forked worker of Puma: a fork " \
                  "loses them."
      ),
      Setting.new(
        :logger, Types::Responding.new(:info, :warn, allowed: "nil, an object that responds to info and warn"),
        default: nil, variable: nil, example: "Logger.new($stderr)",
        sentence: "What memscope writes its few lines to, such as why a request was refused. Where it is nil that is " \
                  "`Rails.logger`, or nothing without Rails."
      )
    ].to_h { |setting| [setting.name, setting] }.freeze
  end
end
