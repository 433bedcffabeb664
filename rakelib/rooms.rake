# frozen_string_literal: true

require_relative "rooms"

namespace :lint do
  desc "Each room of ext/ and lib/ names only the rooms that it may know; no files of lib/ name one another"
  task :rooms do
    violations = Rooms.ext.violations + Rooms.lib.violations +
                 Rooms.lib.circles.map { |files| "these files name one another: #{files.join(', ')}" }
    abort violations.join("\n") unless violations.empty?
  end
end
