# frozen_string_literal: true

require "rake"
require "shellwords"
require_relative "../value/words"

module Memscope
  # Rake tasks: `require "memscope/tasks"` in a Rakefile. In Rails the railtie does that. Each runs the command of its
  # name with the options in OPTIONS: `rake memscope:heap OPTIONS="--pid 4711 --paths-to Order"`. Without --pid it is
  # about the rake process itself, and prints a note: rake is not the server.
  module Tasks
    extend Rake::DSL

    words = Words.beside(__FILE__)

    namespace :memscope do
      %i[report doctor census heap purge].each do |name|
        desc words[name]
        task(name) do
          require_relative "cli"
          status = CLI.run([name.name, *Shellwords.split(ENV.fetch("OPTIONS", ""))])
          exit(status) unless status.zero?
        end
      end
    end
  end
end
