# frozen_string_literal: true

require_relative "allocator"
require_relative "reading"

module Memscope
  # The settings of the allocator that serves malloc, what is wrong with them, and which ones suit this process.
  #
  #   lint = Memscope.lint
  #   lint.problems.each { |problem| warn problem.text }
  #   lint.recommended  # => "MALLOC_CONF=narenas:2,dirty_decay_ms:1000"
  class Lint < Reading
    # One setting of the allocator.
    class Setting < Record
      # @!attribute [r] name
      #   @return [String] as the allocator names it
      field :name, :string, null: false
      # @!attribute [r] value
      #   @return [Integer, String, Boolean, nil] the current value; nil where it is unknown
      field :value, :any
      # @!attribute [r] source
      #   @return [String] where the value comes from, as in Allocator::Setting; "mallctl" where the process changed it
      #     while it ran, "fork" where a fork did
      field :source, :string, null: false
      # @!attribute [r] given
      #   @return [String, nil] the text of the strongest source that names it
      field :given, :string
      # @!attribute [r] problem
      #   @return [String, nil] why that text did not take effect
      field :problem, :string
    end

    # A setting that has no effect, or does harm.
    class Problem < Record
      # @!attribute [r] id
      #   @return [Symbol] of the rule: :unknown_option, :invalid_value, :malformed, :given_twice, :other_allocator,
      #     :misspelt_variable, :wrong_prefix, :ignored_environment, :never_returned, :debugging, :without_effect,
      #     :background_thread, :too_many_arenas, :huge_pages
      field :id, :symbol, null: false
      # @!attribute [r] severity
      #   @return [Symbol] :warning, or :info where it matters little
      field :severity, :symbol, null: false, one_of: %i[info warning]
      # @!attribute [r] text
      #   @return [String] where it is, and what is wrong with it
      field :text, :string, null: false
      # @!attribute [r] replacement
      #   @return [String, nil] what to paste instead: an assignment, a shell command, or a line of Ruby
      field :replacement, :string
    end

    # One setting that suits this process.
    class Recommendation < Record
      # @!attribute [r] name
      #   @return [String] of the setting
      field :name, :string, null: false
      # @!attribute [r] text
      #   @return [String] as written in `recommended`: "narenas:2", "MALLOC_ARENA_MAX=2"
      field :text, :string, null: false
      # @!attribute [r] now
      #   @return [Integer, String, Boolean, nil] the current value; nil where it is unknown
      field :now, :any
      # @!attribute [r] reason
      #   @return [String]
      field :reason, :string, null: false
    end

    require_relative "lint/inputs" # HostEnvironment is a part of it, and a class inside this one

    # @!attribute [r] allocator
    #   @return [Symbol] one of Allocator::NAMES
    field :allocator, :symbol, null: false, one_of: Allocator::NAMES
    # @!attribute [r] version
    #   @return [String, nil] the allocator's version, as upstream writes it
    field :version, :string
    # @!attribute [r] environment
    #   @return [HostEnvironment] what the settings have to fit
    field :environment, HostEnvironment, null: false
    # @!attribute [r] settings
    #   @return [Array<Setting>] in the allocator's order
    collection :settings, [Setting]
    # @!attribute [r] problems
    #   @return [Array<Problem>] warnings first
    field :problems, [Problem], null: false
    # @!attribute [r] recommendations
    #   @return [Array<Recommendation>] each part of `recommended`, with its reason
    field :recommendations, [Recommendation], null: false
    # @!attribute [r] recommended
    #   @return [String, nil] the assignments, or the shell command, that set all the recommendations and keep the
    #     settings that do well; nil where nothing needs to be set, or with a reason where nothing can be
    field :recommended, :string

    # Reads this process's settings. Tier T2.
    #
    # @return [Lint]
    def self.read
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
      body = body_of(Inputs.read)
      took = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - began
      capture(body.update(cost: { tier: :T2, wall_us: took, gvl_us: took, scratch_bytes: 0 }))
    end

    # @api private
    # @param inputs [Inputs]
    # @return [Hash{Symbol => Object}] what follows from them
    def self.body_of(inputs)
      { jemalloc: Jemalloc, glibc: Glibc }.fetch(inputs.allocator.name, Verdict).new(inputs).body
    end
  end
end

require_relative "lint/jemalloc"
require_relative "lint/glibc"
