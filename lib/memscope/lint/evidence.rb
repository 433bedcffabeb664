# frozen_string_literal: true

require_relative "../reading"
require_relative "../allocator"
require_relative "../cgroup"
require_relative "surroundings"

module Memscope
  class Lint < Reading
    # All that a verdict on the settings rests on. The verdict is a pure function of it.
    class Evidence < Record
      # A text of options, and where it stands.
      class Conf < Record
        # @!attribute [r] source
        #   @return [String] "--with-malloc-conf", "malloc_conf", "/etc/malloc.conf", "MALLOC_CONF", …
        field :source, :string, null: false
        # @!attribute [r] text
        #   @return [String, nil] nil where it is not given
        field :text, :string
      end

      # @!attribute [r] allocator
      #   @return [Allocator]
      field :allocator, Allocator, null: false
      # @!attribute [r] variables
      #   @return [Hash{Symbol => String}] of the environment at the start: what allocators read, and what has a
      #     name near that
      field :variables, :hash, null: false
      # @!attribute [r] secure?
      #   @return [Boolean] whether the program runs set-user-ID or with file capabilities: then allocators ignore the
      #     environment
      field :secure, :boolean, null: false
      # @!attribute [r] confs
      #   @return [Array<Conf>] where jemalloc takes its options from, in its order: a later one wins
      field :confs, [Conf], null: false
      # @!attribute [r] conf_variable
      #   @return [String, nil] the variable among them
      field :conf_variable, :string
      # @!attribute [r] current
      #   @return [Hash{Symbol => Object}] of the settings that can change while the process runs, what they are now
      field :current, :hash, null: false
      # @!attribute [r] mallopt_callers
      #   @return [Array<String>] objects that can have changed glibc's settings
      field :mallopt_callers, :list, null: false
      # @!attribute [r] surroundings
      #   @return [Surroundings]
      field :surroundings, Surroundings, null: false

      # @return [Evidence] of this process
      def self.read
        capture({ allocator: Allocator.capture(Native.allocator), **Native.allocator_inputs,
                  surroundings: Surroundings.read(Cgroup.read) })
      end

      # @return [Hash{Symbol => String}] the variables with something in them
      def given = variables.reject { |_name, value| value.empty? }
    end
  end
end
