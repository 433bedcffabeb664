# frozen_string_literal: true

require_relative "../birth"

module Memscope
  module Web
    # Whether a person has said that this process is for development or for tests.
    #
    # Puma, rackup, Sidekiq and `rails server` set RACK_ENV or RAILS_ENV to "development" themselves where neither is
    # set, and Rails and Sinatra assume it. What tells is the environment that the process was started with; except
    # after Puma's restart, which starts the process anew with what it had set itself.
    #
    # @api private
    class Deployment
      # The environments in which a page may be open without authorisation.
      OPEN = %w[development test].freeze
      RESTARTED = "PUMA_INHERIT_"
      private_constant :RESTARTED

      class << self
        # Of this process.
        #
        # @return [Deployment]
        def read = new(Birth::ENVIRONMENT, current: current)

        private

        def current = defined?(::Rails) && ::Rails.respond_to?(:env) ? ::Rails.env.to_s : ENV.fetch("RACK_ENV", nil)
      end

      # @return [String, nil] "development" or "test" where a person said so
      attr_reader :open
      # @return [String] what was found, for the log
      attr_reader :explanation

      # @param started_with [Hash{String => String}, nil] the environment of the start; nil where it cannot be told
      # @param current [String, nil] what Rails.env or RACK_ENV is now
      def initialize(started_with, current:)
        doubt = doubt(started_with) if current == "development" # nobody assumes "test"
        @open = current if OPEN.include?(current) && doubt.nil?
        @explanation = explain(current, doubt).freeze
        freeze
      end

      private

      # "development" is what servers make of nothing.
      def doubt(started_with)
        return ", but its process title has overwritten who said so (docs/web.md)" unless started_with
        if started_with.any? { |name, _value| name.start_with?(RESTARTED) }
          return ", but after a restart by Puma it cannot be told who said so"
        end

        said = started_with.values_at("RAILS_ENV", "RACK_ENV").find { |name| name && !name.empty? }
        return if said == "development"

        " by default only: RAILS_ENV and RACK_ENV were #{said ? said.inspect : 'not set'} when the process was started"
      end

      def explain(current, doubt)
        return "the environment is #{current.inspect}" unless OPEN.include?(current)

        "the environment is #{current}#{doubt || ', and was named'}"
      end
    end
  end
end
