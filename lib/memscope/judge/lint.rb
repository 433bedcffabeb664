# frozen_string_literal: true

require_relative "../process/allocator"
require_relative "../process/host_environment"
require_relative "../value/collection"

module Memscope
  # The settings of the allocator that serves malloc, what is wrong with them, and which ones suit this process.
  #
  #   lint = Memscope.lint
  #   lint.problems.each { |problem| warn problem.text }
  #   lint.recommended  # => "MALLOC_CONF=narenas:2,dirty_decay_ms:1000"
  class Lint < Reading
    # A setting that has no effect, or does harm.
    class Problem < Record
      # @return [Symbol] the broken rule: :invalid_value, :other_allocator, :misspelt_variable, :ignored_environment,
      #   :never_returned, :debugging, :background_thread, :too_many_arenas, :huge_pages, :crashing_profiler,
      #   :idle_allocator, :preload_without_effect
      field :id, :symbol, null: false
      # @return [Symbol] :warning, or :info if the problem matters little
      field :severity, :symbol, null: false, one_of: %i[info warning]
      # @return [String] where the setting is, and what is wrong with it
      field :text, :string, null: false
      # @return [String, nil] what helps: an assignment, "unset NAME", or a line of Ruby
      field :replacement, :string
    end

    # One setting that suits this process.
    class Recommendation < Record
      # @return [String] the setting's name
      field :name, :string, null: false
      # @return [String] as written in `recommended`: "narenas:2", "MALLOC_ARENA_MAX=2"
      field :text, :string, null: false
      # @return [Integer, String, Boolean, nil] the current value; nil if it is unknown
      field :now, :any
      # @return [String]
      field :reason, :string, null: false
    end

    # All that a Lint depends on; the rules are pure functions of it.
    #
    # * `variables`: environment variables at the start of the process: those that allocators read, and those with a
    #   similar name
    # * `secure`: whether the program runs set-user-ID or with file capabilities: then allocators ignore the environment
    # * `confs`: the texts that jemalloc reads its options from, each with its `source`, in its order: a later one wins
    # * `conf_variable`: the environment variable among these sources
    # * `current`: values of the settings that can change while the process runs
    # * `mallopt_callers`: loaded objects that import mallopt, and so may have changed glibc's settings
    #
    # @api private
    Inputs = Struct.new(:allocator, :environment, :variables, :secure, :confs, :conf_variable, :current,
                        :mallopt_callers, keyword_init: true) do
      # @return [Inputs] of this process
      def self.read
        given = { **Native.allocator_settings.slice(:confs, :conf_variable), **Native.allocator_inputs }
        new(allocator: Allocator.read, environment: HostEnvironment.read(Cgroup.read), **Field.plain(given))
      end
    end

    # @return [Symbol] one of Allocator::NAMES
    field :allocator, :symbol, null: false, one_of: Allocator::NAMES
    # @return [String, nil] the allocator's version, as upstream writes it
    field :version, :string
    # @return [HostEnvironment] what the settings have to fit
    field :environment, HostEnvironment, null: false
    # @return [Array<Allocator::Setting>] in the allocator's order, with their current values; the source is "mallctl"
    #   if the process changed the value at run time, "fork" if a fork did
    collection :settings, [Allocator::Setting]
    # @return [Array<Problem>] warnings first
    field :problems, [Problem], null: false
    # @return [Array<Recommendation>] each part of `recommended`, with its reason
    field :recommendations, [Recommendation], null: false
    # @return [String, nil] the assignments that apply all the recommendations and keep the settings that do no harm;
    #   nil, with a reason, if nothing needs to be set or nothing can be set
    field :recommended, :string
    # @return [String, nil] the line of Ruby that sets what jemalloc takes at run time: shorter decay times, and
    #   background threads, which return freed pages while the program is idle; nil if there is nothing to set
    field :tuning, :string

    # Reads this process's settings. Tier T2.
    #
    # @return [Lint]
    def self.read
      began = Cost.now
      body = body_of(Inputs.read)
      capture(body.update(cost: Cost.of(:T2, Cost.now - began)))
    end

    # @api private
    # @param inputs [Inputs]
    # @return [Hash{Symbol => Object}] the fields of a Lint of these inputs, except its cost
    def self.body_of(inputs)
      { jemalloc: Jemalloc, glibc: Glibc }.fetch(inputs.allocator.name, SettingsCheck).new(inputs).body
    end
  end
end

require_relative "lint/settings_check"
require_relative "lint/jemalloc"
require_relative "lint/glibc"
