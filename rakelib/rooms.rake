# frozen_string_literal: true

require_relative "rooms"

namespace :lint do
  desc "Each room of ext/ and lib/ names only the rooms that it may know"
  task :rooms do
    violations = Rooms.ext.violations + Rooms.lib.violations
    abort violations.join("\n") unless violations.empty?
  end
end
