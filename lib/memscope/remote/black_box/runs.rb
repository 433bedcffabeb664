# frozen_string_literal: true

module Memscope
  class BlackBox
    # The requests and jobs that run, which RackTags and SidekiqTags note in the thread that runs them.
    # @api private
    module Runs
      KEY = :memscope_run

      class << self
        # @param work [String, Hash] the name of a job, or the environment of a request
        def during(work)
          thread = Thread.current
          before = thread[KEY]
          thread[KEY] = [work, Clock.time]
          yield
        ensure
          thread[KEY] = before
        end

        # @return [Array<Hash{Symbol => Object}>] those that run, the longest first
        def now
          noted = Thread.list.filter_map { |thread| thread[KEY]&.then { |run| [thread.name, *run] } }
          noted.sort_by(&:last).map { |thread, work, at| { tag: named(work), thread: thread, since: Clock.text(at) } }
        end

        private

        # By what routers set in Rack's environment: Rails the parameters of the path, Sinatra the route's pattern.
        # Neither has a path or a query that somebody sent.
        def named(work)
          return work if work.is_a?(String)

          found = work["action_dispatch.request.path_parameters"]
          name = found&.key?(:controller) ? rails_action(found) : work["sinatra.route"]
          name ? Field.utf8(name.to_s) : "a request without a route"
        end

        def rails_action(parameters)
          names = parameters[:controller].split("/").map { |part| part.split("_").map(&:capitalize).join }
          "#{names.join('::')}Controller##{parameters[:action]}"
        end
      end
    end
  end
end
