# frozen_string_literal: true

require_relative "../../process/allocator"
require_relative "../../process/host_environment"

module Memscope
  class Lint < Reading
    # All that a verdict on the settings depends on. The verdict is a pure function of it.
    class Inputs < Record
      # A text of jemalloc's options, and its source.
      class Conf < Record
        # @return [String] "--with-malloc-conf", "malloc_conf", "/etc/malloc.conf", "MALLOC_CONF", …
        field :source, :string, null: false
        # @return [String, nil] nil if it is not set
        field :text, :string
      end

      # @return [Allocator]
      field :allocator, Allocator, null: false
      # @return [Hash{Symbol => String}] environment variables at the start of the process: those that allocators read,
      #   and those with a similar name
      field :variables, :hash, null: false
      # @return [Boolean] whether the program runs set-user-ID or with file capabilities: then allocators ignore the
      #   environment
      field :secure?, :boolean, null: false
      # @return [Array<Conf>] the texts that jemalloc reads its options from, in its order: a later one wins
      field :confs, [Conf], null: false
      # @return [String, nil] the environment variable among the sources of `confs`
      field :conf_variable, :string
      # @return [Hash{Symbol => Object}] current values of the settings that can change while the process runs
      field :current, :hash, null: false
      # @return [Array<String>] loaded objects that import mallopt, and so may have changed glibc's settings
      field :mallopt_callers, :list, null: false
      # @return [HostEnvironment]
      field :environment, HostEnvironment, null: false

      # @return [Inputs] of this process
      def self.read
        capture({ allocator: Allocator.read, **Native.allocator_settings.slice(:confs, :conf_variable),
                  **Native.allocator_inputs, environment: HostEnvironment.read(Cgroup.read) })
      end
    end
  end
end
