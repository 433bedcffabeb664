# frozen_string_literal: true

require_relative "allocator"
require_relative "reading"

module Memscope
  # How the allocator that serves malloc is set, what is wrong with that, and what would suit this process.
  #
  #   lint = Memscope.lint
  #   lint.problems.each { |problem| warn problem.text }
  #   lint.recommended  # => "MALLOC_CONF=narenas:2,dirty_decay_ms:1000"
  class Lint < Reading
    alias reading_to_h to_h
    private :reading_to_h
    include Enumerable

    # One setting of the allocator.
    class Setting < Record
      # @!attribute [r] name
      #   @return [String] in the allocator's own words
      field :name, :string, null: false
      # @!attribute [r] value
      #   @return [Integer, String, Boolean, nil] what holds now; nil where that is not known
      field :value, :any
      # @!attribute [r] source
      #   @return [String] where the value came from, as in Allocator::Setting; "mallctl" where the process changed it
      #     while it ran, "fork" where a fork did
      field :source, :string, null: false
      # @!attribute [r] given
      #   @return [String, nil] the text of the strongest source that names it
      field :given, :string
      # @!attribute [r] problem
      #   @return [String, nil] why that text did not take effect
      field :problem, :string
    end

    # Something about the settings that does not do what was meant, or does harm.
    class Problem < Record
      # @!attribute [r] id
      #   @return [Symbol] of the rule: :unknown_option, :invalid_value, :malformed, :given_twice, :other_allocator,
      #     :misspelt_variable, :wrong_prefix, :ignored_environment, :never_returned, :debugging, :without_effect,
      #     :background_thread, :too_many_arenas, :huge_pages
      field :id, :symbol, null: false
      # @!attribute [r] severity
      #   @return [Symbol] :warning, or :info where little depends on it
      field :severity, :symbol, null: false, one_of: %i[info warning]
      # @!attribute [r] text
      #   @return [String] what is wrong, beginning with where
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
      #   @return [String] as it stands in what is to be pasted: "narenas:2", "MALLOC_ARENA_MAX=2"
      field :text, :string, null: false
      # @!attribute [r] now
      #   @return [Integer, String, Boolean, nil] what holds now; nil where that is not known
      field :now, :any
      # @!attribute [r] reason
      #   @return [String]
      field :reason, :string, null: false
    end

    require_relative "lint/surroundings" # a part of it, and a class inside this one

    # @!attribute [r] allocator
    #   @return [Symbol] one of Allocator::NAMES
    field :allocator, :symbol, null: false, one_of: Allocator::NAMES
    # @!attribute [r] version
    #   @return [String, nil] the allocator's, as upstream says it
    field :version, :string
    # @!attribute [r] surroundings
    #   @return [Surroundings] what the settings have to fit
    field :surroundings, Surroundings, null: false
    # @!attribute [r] settings
    #   @return [Array<Setting>] in the allocator's order
    field :settings, [Setting], null: false
    # @!attribute [r] problems
    #   @return [Array<Problem>] warnings first
    field :problems, [Problem], null: false
    # @!attribute [r] recommendations
    #   @return [Array<Recommendation>] each part of `recommended`, with its reason
    field :recommendations, [Recommendation], null: false
    # @!attribute [r] recommended
    #   @return [String, nil] the assignments, or the shell command, that give this process all the recommendations and
    #     keep what is well set; nil where nothing need be set, or with a reason where nothing can be
    field :recommended, :string

    # Reads this process's settings. Tier T2.
    #
    # @return [Lint]
    def self.read
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
      body = body_of(Evidence.read)
      took = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond) - began
      capture(body.update(cost: { tier: :T2, wall_us: took, gvl_us: took, scratch_bytes: 0 }))
    end

    # @api private
    # @param evidence [Evidence]
    # @return [Hash{Symbol => Object}] what follows from it
    def self.body_of(evidence)
      { jemalloc: JemallocVerdict, glibc: GlibcVerdict }.fetch(evidence.allocator.name, Verdict).new(evidence).body
    end

    # @yield [Setting] each, in the allocator's order
    # @return [Enumerator<Setting>, self] an Enumerator without a block
    def each(&block)
      return enum_for(:each) { settings.size } unless block

      settings.each(&block)
      self
    end

    # @return [Hash{Symbol => Object}] as of every reading; Enumerable's would want pairs
    def to_h = reading_to_h
  end
end

require_relative "lint/evidence"
require_relative "lint/jemalloc_verdict"
require_relative "lint/glibc_verdict"
