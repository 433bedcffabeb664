# frozen_string_literal: true

require_relative "../remote/external_process"

module Memscope
  module CLI
    # The Ruby processes of this machine that can be seen: from outside, and of those that listen what serves malloc.
    module Processes
      # Seconds to wait for one that listens.
      PATIENCE = 2
      private_constant :PATIENCE

      # One process.
      Entry = Struct.new(:outside, :malloc) do
        # @return [String] what serves malloc; with "?" what is mapped, which proves nothing
        def malloc_text
          return malloc.name if malloc

          mapped = outside.mallocs.map(&:name)
          (mapped - %i[glibc musl] + mapped).first.then { |name| name ? "#{name}?" : "?" }
        end
      end

      # @return [Array<Entry>] the largest first, without the process that asks
      def self.read
        entries = (ExternalProcess.rubies - [Process.pid]).filter_map do |pid|
          outside = ExternalProcess.read(pid, cgroup: false)
          Entry.new(outside, (malloc(pid) if outside.listens?))
        rescue Client::Unreachable
          nil # it has ended meanwhile
        end
        entries.sort_by { |entry| [-(entry.outside.rss_bytes || 0), entry.outside.pid] }
      end

      # @return [Symbol, nil] nil where it does not say
      def self.malloc(pid)
        Client.new(pid, timeout: PATIENCE).call(:allocator).then { |allocator| allocator.name if allocator.proved? }
      rescue Client::Unreachable, Client::Failed
        nil
      end
      private_class_method :malloc
    end
  end
end
