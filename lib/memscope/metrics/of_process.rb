# frozen_string_literal: true

require_relative "definition"

module Memscope
  module Metrics
    OF_PROCESS = [
      Definition.new("rss_bytes", "Resident memory; with Puma that of each worker, as it last reported it",
                     source: :snapshot, read: :rss_bytes, report: :rss_bytes),
      Definition.new("virtual_bytes", "Address space", source: :snapshot, read: :virtual_bytes),
      Definition.new("shared_bytes", "Resident pages of files and of shared memory",
                     source: :snapshot, read: :shared_bytes),
      Definition.new("allocator_info", "Always 1; the labels say which library serves malloc",
                     source: :allocator, labels: %i[allocator version], shared: true,
                     read: ->(allocator) { { [allocator.name, allocator.version] => 1 } })
    ].freeze
    private_constant :OF_PROCESS
  end
end
