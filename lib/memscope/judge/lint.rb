# frozen_string_literal: true

require_relative "../process/host_environment"

module Memscope
  Record.declare(__FILE__)

  # The settings of the allocator that serves malloc, their problems, and the settings that suit this process.
  #
  #   lint = Memscope.lint
  #   lint.problems.each { |problem| warn problem.text }
  #   lint.recommended  # => "MALLOC_CONF=narenas:2,dirty_decay_ms:1000"
  class Lint < Reading
    WORDS = Words.beside(__FILE__)
    private_constant :WORDS

    # All that a Lint depends on. The rules are pure functions of it.
    #
    # * `variables`: environment variables at the start of the process: those that allocators read, and those with a
    #   similar name
    # * `secure`: whether the program runs set-user-ID or with file capabilities: then allocators ignore the environment
    # * `confs`: the texts that jemalloc reads its options from, each with its `source`, in its order: a later one wins
    # * `conf_variable`: the environment variable among these sources
    # * `current`: values of the settings that can change while the process runs
    # * `mallopt_callers`: loaded objects that import mallopt, and so may have changed glibc's settings
    # @api private
    Inputs = Struct.new(:allocator, :environment, :variables, :secure, :confs, :conf_variable, :current,
                        :mallopt_callers, keyword_init: true) do
      # @return [Inputs]
      def self.read(native = Native)
        given = { **native.allocator_settings.slice(:confs, :conf_variable), **native.allocator_inputs }
        new(allocator: Allocator.read(native: native), **Field.plain(given),
            environment: HostEnvironment.read(Cgroup.read(native: native), native: native))
      end
    end

    include Collection

    # Reads this process's settings. Tier T2.
    #
    # @return [Lint]
    def self.read(native: Native)
      began = Cost.now
      inputs = Inputs.read(native)
      capture(body_of(inputs).update(cost: Cost.of(:T2, Cost.now - began)), inputs.allocator.envelope)
    end

    # @api private
    # @return [Hash{Symbol => Object}] the fields of a Lint of these inputs, except its cost
    def self.body_of(inputs)
      { jemalloc: Jemalloc, glibc: Glibc }.fetch(inputs.allocator.name, SettingsCheck).new(inputs).body
    end
  end
end

%w[settings_check jemalloc glibc].each { |part| require_relative "lint/#{part}" }
