# frozen_string_literal: true

module Memscope
  module Web
    # Whether a person has said that this process is for development or for tests.
    #
    # Puma, rackup, Sidekiq and `rails server` set RACK_ENV or RAILS_ENV to "development" themselves where neither is
    # set, and Rails and Sinatra assume it. What tells is the environment that the process was started with, which the
    # kernel keeps in /proc/self/environ; except after Puma's restart, which starts the process anew with what it had
    # set itself.
    #
    # @api private
    class Deployment
      # The environments in which a page may be open without authorisation.
      OPEN = %w[development test].freeze
      ENVIRON = "/proc/self/environ"
      RESTARTED = "PUMA_INHERIT_"
      private_constant :ENVIRON, :RESTARTED

      class << self
        # Of this process.
        #
        # @return [Deployment]
        def read = new(started_with(environ), current: current)

        private

        # A long process title overwrites it: then nothing was said.
        def environ
          File.binread(ENVIRON)
        rescue SystemCallError
          ""
        end

        def started_with(text)
          text.split("\0").to_h { |pair| pair.split("=", 2).then { |name, value| [name, value.to_s] } }
        end

        def current = defined?(::Rails) && ::Rails.respond_to?(:env) ? ::Rails.env.to_s : ENV.fetch("RACK_ENV", nil)
      end

      # @return [String, nil] "development" or "test" where a person said so
      attr_reader :open
      # @return [String] what was found, for the log
      attr_reader :explanation

      # @param started_with [Hash{String => String}] the environment of the start
      # @param current [String, nil] what Rails.env or RACK_ENV is now
      def initialize(started_with, current:)
        said = started_with.values_at("RAILS_ENV", "RACK_ENV").find { |name| name && !name.empty? }
        restarted = started_with.any? { |name, _value| name.start_with?(RESTARTED) }
        @open = current if OPEN.include?(current) && (current != "development" || (said == current && !restarted))
        @explanation = explain(current, said, restarted).freeze
        freeze
      end

      private

      # Nobody assumes "test"; "development" is what servers make of nothing.
      def explain(current, said, restarted)
        return "the environment is #{current.inspect}" unless OPEN.include?(current)
        return "the environment is #{current}, and was named" if open
        return "the environment is development, but after a restart by Puma it cannot be told who said so" if restarted

        "the environment is development by default only: RAILS_ENV and RACK_ENV were " \
          "#{said ? said.inspect : 'not set'} when the process was started"
      end
    end
  end
end
