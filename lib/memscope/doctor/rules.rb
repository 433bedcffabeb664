# frozen_string_literal: true

require_relative "rule"

module Memscope
  module Doctor
    # All rules, as data, and what they have in common. Amounts below FLOOR are not worth a remedy.
    #
    # @api private
    module Rules
      MEBIBYTE = Report::Quantity::MEBIBYTE
      # Bytes.
      FLOOR = 16 * MEBIBYTE

      GLIBC = ->(f) { "glibc does not serve malloc" unless f.glibc? }
      JEMALLOC = ->(f) { "jemalloc does not serve malloc" unless f.jemalloc? }
      LIMITED = ->(f) { "the container has no limit that can be read" unless f.cgroup.limit_bytes }
      # What the kernel says of huge pages, for the evidence.
      HUGE = lambda do |f|
        { anonymous_huge_bytes: f.process_memory.anonymous_huge_bytes, huge_pages: f.environment.thp_mode,
          huge_page_gaps: f.environment.thp_gaps }
      end
      private_constant :MEBIBYTE, :GLIBC, :JEMALLOC, :LIMITED, :HUGE

      # @return [Array<Rule>]
      def self.all = [SMALL, *SETTINGS, *GLIBC_RULES, *JEMALLOC_RULES, *RUBY_RULES, *KERNEL_RULES, *KNOWN_RULES]

      extend Report::Quantity

      # @return [String] "61 %"
      def self.percent(share) = format("%.0f %%", 100 * share)

      private_class_method :percent
    end
  end
end

%w[settings glibc jemalloc ruby kernel known].each { |file| require_relative "rules/#{file}" }
