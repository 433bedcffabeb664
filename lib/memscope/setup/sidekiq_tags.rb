# frozen_string_literal: true

require_relative "facade"

module Memscope
  # A server middleware for Sidekiq that tags a job's allocations with its class, so that `Profile#by(:tag)` of a malloc
  # profile or a profile of objects shows which jobs hold memory, and Memscope.tags shows how much a job retains.
  #
  #   Sidekiq.configure_server do |config|
  #     config.server_middleware { |chain| chain.add Memscope::SidekiqTags }
  #   end
  class SidekiqTags
    # @param payload [Hash{String => Object}] the payload of the job. For Active Job the tag is the wrapped class
    def call(_job, payload, _queue, &)
      name = MallocProfile.shortened((payload["wrapped"] || payload["class"]).to_s)
      name.empty? ? yield : BlackBox::Runs.during(name) { Memscope.tag(name, &) }
    end
  end

  eager_load! # before there are jobs
end
