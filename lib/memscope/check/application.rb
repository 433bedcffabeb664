# frozen_string_literal: true

module Memscope
  class Check < Reading
    # A Rack application in this process, which gets the same request each time. An answer that would mislead a check is
    # refused: a leak on an error page is not the one in question.
    # @api private
    class Application
      # As if from a browser on this machine, by HTTPS: an application may redirect any other request.
      HEADERS = { "HTTP_HOST" => "localhost", "HTTP_ACCEPT" => "*/*", "REMOTE_ADDR" => "127.0.0.1" }.freeze
      # The keys of a request's environment under which frameworks keep the exception that their error page shows.
      ERRORS = %w[action_dispatch.exception sinatra.error].freeze
      # Messages quote at most this many characters of an error.
      EXCERPT = 200

      # @raise [Failed] if Rack or the application of the rackup file cannot be loaded
      def initialize(rackup, path)
        call = "Memscope::Check.application"
        @rackup = Field.check(:target, rackup, "a rackup file", call: call) do
          rackup.is_a?(String) && File.file?(rackup)
        end
        @path = Field.check(:path, path, WORDS[:path], call: call) { path.is_a?(String) && path.start_with?("/") }
        choose_environment
        @application = loaded
      end

      # Fields of the check, and reasons.
      def to_h = { target: @rackup, path: @path, environment: @environment, reasons: { environment: @default } }

      # @raise [Failed] if a request fails
      def call(times) = times.times { request }

      private

      # Converts all errors but signals into Failed. Otherwise, if the application called `exit`, the exit status would
      # pass for a verdict.
      def request
        environment = Rack::MockRequest.env_for("https://localhost#{@path}", HEADERS.dup)
        status, headers, body = @application.call(environment)
        text = read(body)
        return if (200..299).cover?(status.to_i)

        location = headers["location"] || headers["Location"]
        text = location ? "to #{location}" : excerpt(environment.values_at(*ERRORS).compact.first || text)
        raise Failed, "GET #{@path}: status #{status} #{text}".rstrip
      rescue Exception => e # rubocop:disable Lint/RescueException
        failed("GET #{@path}", e)
      end

      def failed(what, error)
        raise error if error.is_a?(SignalException) || error.is_a?(Failed)

        place = error.backtrace_locations&.first&.then { |one| " at #{one.path}:#{one.lineno}" }
        raise Failed, "#{what} raised #{excerpt(error)}#{place}"
      end

      # Production, as on a server, unless told otherwise: development reloads code and turns caches off.
      def choose_environment
        given = ENV["RAILS_ENV"] || ENV.fetch("RACK_ENV", nil)
        @default = WORDS[:production] unless given
        @environment = given || "production"
        ENV["RAILS_ENV"] ||= @environment
        ENV["RACK_ENV"] ||= @environment
      end

      def loaded
        require "rack"
        parsed = Rack::Builder.parse_file(File.expand_path(@rackup))
        parsed.is_a?(Array) ? parsed.first : parsed # before Rack 3: the application and options
      rescue LoadError => e
        raise Failed, WORDS.fill(:not_loaded, path: @rackup, why: e.path == "rack" ? WORDS[:no_rack] : excerpt(e))
      rescue Exception => e # rubocop:disable Lint/RescueException
        failed(@rackup, e)
      end

      # The first part of the body, after the whole body has been read.
      def read(body)
        return body.call(StringIO.new) unless body.respond_to?(:each)

        first = nil
        body.each { |part| first ||= part }
        first
      ensure
        body.close if body.respond_to?(:close)
      end

      # The first line of an error or a text that is not empty.
      def excerpt(error)
        text = error.is_a?(Exception) ? "#{error.class}: #{error.message}" : error.to_s
        Field.line(Field.utf8(text)[/\S.*/].to_s.strip[0, EXCERPT])
      end
    end
  end
end
