# frozen_string_literal: true

require "rake"

module Memscope
  # Rake tasks: `require "memscope/tasks"` in a Rakefile. In Rails the railtie does that. Each runs the command of its
  # name with the options in OPTIONS: `rake memscope:heap OPTIONS="--pid 4711 --paths-to Order"`. Without --pid it is
  # about the rake process itself, and says so: rake is not the server.
  module Tasks
    extend Rake::DSL

    # Each task with its description in `rake -T`.
    TASKS = {
      report: "Print where the memory of this rake process is (OPTIONS='--pid N --json')",
      doctor: "Diagnose the memory, and fail at a warning (OPTIONS='--pid N')",
      census: "Count the objects by class (OPTIONS='--pid N')",
      heap: "Print what retains the objects (OPTIONS='--pid N --paths-to Order')",
      purge: "Return memory to the kernel (OPTIONS='--pid N --dry-run')"
    }.freeze
    private_constant :TASKS

    namespace :memscope do
      TASKS.each do |name, description|
        desc description
        task(name) do
          require "shellwords"
          require_relative "cli"
          status = CLI.run([name.name, *Shellwords.split(ENV.fetch("OPTIONS", ""))])
          exit(status) unless status.zero?
        end
      end
    end
  end
end
