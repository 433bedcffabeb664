# frozen_string_literal: true

require_relative "answer"

module Memscope
  class Exercise < Reading
    # A Rack application in this process.
    #
    # @api private
    class Application
      # Where the frameworks keep the exception that their error page is about.
      ERRORS = %w[action_dispatch.exception sinatra.error].freeze
      # The names of these two headers have no prefix in a Rack environment.
      PLAIN = %w[CONTENT_TYPE CONTENT_LENGTH].freeze
      private_constant :ERRORS, :PLAIN

      # @return [Hash{Symbol => String}]
      attr_reader :reasons

      # @param rackup [String] path of the file that defines the application
      # @raise [ArgumentError] without such a file
      # @raise [Failed] if Rack or the application cannot be loaded
      def initialize(rackup, path, headers:, allowed:)
        file = rackup.is_a?(String) && File.file?(rackup)
        Field.refuse("Memscope::Exercise.run: target", rackup, "a rackup file") unless file
        valid = path.is_a?(String) && path.start_with?("/")
        Field.refuse("Memscope::Exercise.run: path", path, "a path that begins with /") unless valid
        @rackup = rackup
        @path = path
        @allowed = Answer.check_allowed(allowed)
        given = headers.to_h { |name, value| variable(name, value) }
        @headers = { "HTTP_HOST" => "localhost", "HTTP_ACCEPT" => "*/*", "REMOTE_ADDR" => "127.0.0.1", **given }
        @reasons = {}
        choose_environment
        @application = loaded
      end

      # @return [Hash{Symbol => Object}] fields of the Exercise
      def to_h
        { target: @rackup, path: @path, environment: @environment }
      end

      # Makes one request.
      #
      # @return [void]
      # @raise [Failed]
      def call
        status, location, error = answer
        Answer.check(what, status, @allowed, location: location, error: error)
      end

      private

      def answer
        environment = Rack::MockRequest.env_for("http://localhost#{@path}", @headers.dup)
        status, headers, body = @application.call(environment)
        text = read(body)
        [status.to_i, location(headers), environment.values_at(*ERRORS).compact.first || text]
      rescue Exception => e # rubocop:disable Lint/RescueException -- see failed
        failed(what, e)
      end

      # Converts all errors but signals into Failed. Otherwise, if the application called `exit`, the exit status would
      # pass for a verdict.
      def failed(what, error)
        raise error if error.is_a?(SignalException)

        place = error.backtrace_locations&.first&.then { |one| " at #{one.path}:#{one.lineno}" }
        raise Failed, "#{what} raised #{Answer.excerpt(error)}#{place}"
      end

      def what = "GET #{@path}"

      def variable(name, value)
        name = name.upcase.tr("-", "_")
        [PLAIN.include?(name) ? name : "HTTP_#{name}", value]
      end

      # Production, as on a server, unless told otherwise: development reloads code and turns caches off.
      def choose_environment
        given = ENV["RAILS_ENV"] || ENV.fetch("RACK_ENV", nil)
        @reasons[:environment] = "neither RAILS_ENV nor RACK_ENV is set" unless given
        @environment = given || "production"
        ENV["RAILS_ENV"] ||= @environment
        ENV["RACK_ENV"] ||= @environment
      end

      def loaded
        require "rack"
        parsed = Rack::Builder.parse_file(File.expand_path(@rackup))
        parsed.is_a?(Array) ? parsed.first : parsed # before Rack 3: the application and options
      rescue LoadError => e
        missing = e.path == "rack" ? "the gem rack is not there" : Answer.excerpt(e)
        raise Failed, "#{@rackup}: #{missing}; with the gems of its Gemfile: bundle exec memscope exercise"
      rescue Exception => e # rubocop:disable Lint/RescueException -- see failed
        failed(@rackup, e)
      end

      # @return [String, nil] the first part of the body; the whole body is read
      def read(body)
        return body.call(StringIO.new) unless body.respond_to?(:each)

        first = nil
        body.each { |part| first ||= part }
        first
      ensure
        body.close if body.respond_to?(:close)
      end

      def location(headers) = headers["location"] || headers["Location"]
    end
    private_constant :Application
  end
end
