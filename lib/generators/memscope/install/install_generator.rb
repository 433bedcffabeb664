# frozen_string_literal: true

require "rails/generators/base"

module Memscope
  # Generators for `rails generate`.
  module Generators
    # `rails generate memscope:install` writes an initializer with every setting, and shows how to mount the pages.
    class InstallGenerator < ::Rails::Generators::Base
      # Columns of a comment in the initializer.
      WIDTH = 100
      private_constant :WIDTH

      source_root File.expand_path("templates", __dir__)
      desc "Writes config/initializers/memscope.rb, with all settings commented out, " \
           "and shows how to mount the pages."

      # @return [void]
      def write_initializer = template("memscope.rb.tt", "config/initializers/memscope.rb")

      # @return [void]
      def say_how_to_mount
        say <<~TEXT

          Nothing is mounted yet. For the pages, add this to config/routes.rb, where you want them:

            mount Memscope::Web => "/memscope"

          They are closed until config/initializers/memscope.rb says who may use them.
        TEXT
      end

      private

      # @param setting [Configuration::Setting]
      # @return [Array<String>] the lines of its comment
      def comment(setting)
        text = "#{setting.sentence} Allowed: #{setting.allowed}. Default: #{setting.default.inspect}."
        text += " Environment: #{setting.variable}." if setting.variable
        text.delete("`").scan(/\S.{0,#{WIDTH}}(?=\s|\z)/o)
      end
    end
  end
end
