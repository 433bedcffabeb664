# frozen_string_literal: true

require_relative "facade"

module Memscope
  # A Rack middleware that tags a request's allocations with its route while a malloc profile or a profile of objects
  # runs, so that `Profile#by(:tag)` shows which routes hold memory, and Memscope.tags shows how much a request retains.
  # Without a profile, it notes for the black box that the request runs, which costs under a microsecond.
  #
  #   config.middleware.use Memscope::RackTags                    # Rails: "OrdersController#show"
  #   use(Memscope::RackTags) { |env| route_of(env) }             # others: the block's value; nil for no tag
  #
  # Put it last, after any middleware that changes the request. Allocations of a response body that is generated while
  # it is sent are not tagged.
  #
  # A process has room for 4,096 tags, see Memscope.tag: never use the requested path as a tag.
  class RackTags
    # @yieldparam env [Hash] Rack's environment
    # @yieldreturn [String, Symbol, nil]
    def initialize(app, &name)
      @app = app
      @name = name || method(:rails_action)
    end

    # @return [Array(Integer, Hash, #each)]
    def call(env)
      # Whatever kind of name the block returns, in any encoding, the request must not fail.
      name = Field.utf8(@name.call(env).to_s) if Native.profile_runs? || Native.object_profile_runs?
      name &&= MallocProfile.shortened(name)
      BlackBox::Runs.during(env) { name.to_s.empty? ? @app.call(env) : Memscope.tag(name) { @app.call(env) } }
    end

    private

    # The request has not reached the router yet. nil for a mounted application, a redirect or no route.
    def rails_action(env)
      return unless defined?(::Rails.application) && ::Rails.application

      request = ::ActionDispatch::Request.new(env)
      found = ::Rails.application.routes.recognize_path(request.url, method: request.request_method)
      "#{found[:controller].camelize}Controller##{found[:action]}" if found[:controller]
    rescue ::ActionController::RoutingError, ::ActionController::BadRequest, ::URI::InvalidURIError
      nil
    end
  end

  eager_load! # before there are requests
end
