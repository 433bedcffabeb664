# frozen_string_literal: true

# The settings that there are to be.
module PlannedSettings
  DEFAULTS = { listen: false, socket_directory: nil, username: nil, password: nil, authorize: nil, actions: true,
               worker_interval_seconds: 10, metrics_ledger_interval_seconds: nil, metrics_arenas: false,
               metrics_objects: false, objects_profile: false, history: true, black_box: true, release: nil,
               policy: :off, policy_soft: 0.8, policy_interval_seconds: 900, policy_min_uptime_seconds: 1800,
               policy_supervised: false, background_thread: false, logger: nil }.freeze

  # What a setting becomes if its variable is wrong, where that is not its default.
  SAFE = { username: "", password: "", actions: false }.freeze
end
