# frozen_string_literal: true

module Memscope
  class BlackBox
    # The requests and jobs that run, which RackTags and SidekiqTags note in the thread that runs them.
    # @api private
    module Runs
      KEY = :memscope_run
      # What routers set in Rack's environment: for Rails the parameters of the path, for Sinatra the route's pattern.
      # Neither has a path or a query that somebody sent.
      ROUTERS = {
        "action_dispatch.request.path_parameters" => ->(found) { Runs.rails_action(found) if found[:controller] },
        "sinatra.route" => :itself.to_proc
      }.freeze

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

        def rails_action(parameters)
          names = parameters[:controller].split("/").map { |part| part.split("_").map(&:capitalize).join }
          "#{names.join('::')}Controller##{parameters[:action]}"
        end

        private

        def named(work)
          return work if work.is_a?(String)

          key, read = ROUTERS.find { |variable, _read| work[variable] }
          name = read&.call(work[key])
          name ? Field.utf8(name.to_s) : "a request without a route"
        end
      end
    end
  end
end
