# frozen_string_literal: true

require_relative "facade"
require_relative "malloc_profile"

module Memscope
  # A Rack middleware: while a malloc profile runs, what a request allocates is tagged with its route, and
  # `Profile#by(:tag)` says which routes hold memory. Without a profile it costs a method call.
  #
  #   config.middleware.use Memscope::RackTags                    # Rails: "OrdersController#show"
  #   use(Memscope::RackTags) { |env| route_of(env) }             # others: what the block calls it; nil for no tag
  #
  # Put it last, so that what other middleware changes about the request has been changed. The body of a response that
  # is made while it is sent is not tagged.
  #
  # A profile has room for few tags: never make one of a path as it was asked for. Behind the first 1,000 names all
  # others are "other".
  class RackTags
    # As many names are told apart.
    MOST = 1000
    OTHER = "other"
    private_constant :MOST, :OTHER

    # @param app [#call]
    # @yieldparam env [Hash] of Rack
    # @yieldreturn [String, nil]
    def initialize(app, &name)
      @app = app
      @name = name || method(:rails_action)
      @names = {}
      @mutex = Mutex.new
    end

    # @param env [Hash] of Rack
    # @return [Array(Integer, Hash, #each)]
    def call(env)
      name = MallocProfile.running? ? bounded(@name.call(env)) : nil
      name ? Memscope.tag(name) { @app.call(env) } : @app.call(env)
    end

    private

    def bounded(name)
      return if name.nil? || name.empty?

      @names[name] || @mutex.synchronize do
        next OTHER if @names.size >= MOST

        @names[name.dup.freeze] = name.byteslice(0, MallocProfile::TAG_BYTES).scrub("").freeze
      end
    end

    # Asked of the routes, which the request has not reached yet; nil for what is mounted, redirected or not there.
    def rails_action(env)
      return unless defined?(::Rails.application) && ::Rails.application

      request = ::ActionDispatch::Request.new(env)
      found = ::Rails.application.routes.recognize_path(request.url, method: request.request_method)
      "#{found[:controller].camelize}Controller##{found[:action]}" if found[:controller]
    rescue ::ActionController::RoutingError, ::ActionController::BadRequest, ::URI::InvalidURIError
      nil
    end
  end
end
