# frozen_string_literal: true

require_relative "reading"

module Memscope
  # Who holds the memory that malloc has given out, by Ruby line: what lives of the allocations that were sampled since
  # profiling began. Each number is an estimate, and stands beside its standard error and the samples that it is made
  # of.
  #
  #   profile = Memscope::MallocProfile.snapshot
  #   profile.by(:line).first               # => the line that holds most
  #   puts profile                          # the same for people
  #   (later - profile).by(:line).first     # => the line that grew most
  #   File.write("heap.html", profile.to_html)
  class Profile < Reading
    require_relative "profile/stack" # parts of it, and classes inside this one
    require_relative "profile/entry"
    require_relative "profile/sampled"
    include Sampled

    autoload :Collapsed, File.join(__dir__, "profile/collapsed.rb")
    autoload :Consistency, File.join(__dir__, "profile/consistency.rb")
    autoload :Difference, File.join(__dir__, "profile/difference.rb")
    autoload :Firefox, File.join(__dir__, "profile/firefox.rb")
    autoload :FlameGraph, File.join(__dir__, "profile/flame_graph.rb")
    autoload :Grouping, File.join(__dir__, "profile/grouping.rb")
    autoload :Libraries, File.join(__dir__, "profile/libraries.rb")
    autoload :Pprof, File.join(__dir__, "profile/pprof.rb")
    autoload :Speedscope, File.join(__dir__, "profile/speedscope.rb")
    private_constant :Pprof # which needs a gem

    # What sampling itself costs.
    class Overhead < Record
      # @!attribute [r] samples_taken
      #   @return [Integer] since profiling began, those that were freed again among them
      field :samples_taken, :count, null: false
      # @!attribute [r] nanoseconds
      #   @return [Integer] that taking them took
      field :nanoseconds, :count, null: false
      # @!attribute [r] table_bytes
      #   @return [Integer] resident memory of the tables of stacks, frames, names and live samples: whole pages
      field :table_bytes, :bytes, null: false
      # @!attribute [r] dropped_samples
      #   @return [Integer] for which a table had no room: what they would stand for is missing
      field :dropped_samples, :count, null: false
      # @!attribute [r] lost_frees
      #   @return [Integer] of sampled blocks that were noticed too late: they may count as alive
      field :lost_frees, :count, null: false
      # @!attribute [r] inflated_bytes
      #   @return [Integer, nil] by which sampling raises the allocator's active bytes: jemalloc gives a small sample
      #     pages of its own
      field :inflated_bytes, :bytes
      # @!attribute [r] patched_imports
      #   @return [Integer, nil] places that were made to call memscope instead of malloc or free
      field :patched_imports, :count
      # @!attribute [r] patched_objects
      #   @return [Integer, nil] programs and libraries that these are in
      field :patched_objects, :count
    end

    # @!attribute [r] backend
    #   @return [Symbol] who samples: :jemalloc, or :imports
    field :backend, :symbol, null: false, one_of: %i[jemalloc imports]
    # @!attribute [r] rate_bytes
    #   @return [Integer] how many bytes are allocated between two samples, on average
    field :rate_bytes, :count, null: false
    # @!method running?
    #   @return [Boolean] whether it went on when this was read
    field :running, :boolean, null: false
    # @!attribute [r] started_at
    #   @return [Time] UTC, to the millisecond, when profiling began
    field :started_at, :time, null: false
    # @!attribute [r] generation
    #   @return [Integer] the current one: what is allocated now belongs to it
    field :generation, :count, null: false
    # @!attribute [r] frames
    #   @return [Array<Frame>] of all stacks
    field :frames, [Frame], null: false
    # @!attribute [r] stacks
    #   @return [Array<Stack>] where was allocated what lives; its numbers sum to `live_bytes` and `samples`
    field :stacks, [Stack], null: false
    # @!attribute [r] live_bytes
    #   @return [Integer] allocated since profiling began, and not freed
    field :live_bytes, :bytes, null: false
    # @!attribute [r] samples
    #   @return [Integer] live ones, from which all this is estimated
    field :samples, :count, null: false
    # @!attribute [r] error_bytes
    #   @return [Integer] one standard error of `live_bytes`
    field :error_bytes, :bytes, null: false
    # @!attribute [r] allocator_live_bytes
    #   @return [Integer, nil] what lives in all by the allocator's own count, older blocks among it
    field :allocator_live_bytes, :bytes
    # @!attribute [r] coverage
    #   @return [Float, nil] `live_bytes` as a share of what the allocator's count grew by meanwhile; nil where that is
    #     too little to compare
    field :coverage, :number
    # @!attribute [r] overhead
    #   @return [Overhead]
    field :overhead, Overhead, null: false

    # Made when it is asked for.
    remove_method :started_at

    class << self
      # Finds out which library each line belongs to: only the process that ran it knows where its Ruby keeps what.
      #
      # @param body [Hash{Symbol => Object}] from the extension
      # @param envelope [Hash{Symbol => Object}, nil]
      def capture(body, envelope = nil)
        super(body.merge(frames: body[:frames].map { |frame| Libraries.attributed(frame) }), envelope)
      end

      # @api private
      # @return [Profile] checked: stacks name frames there are, and their numbers sum to the whole
      def load(hash, where) = super.tap { |profile| Consistency.new(profile, where).check }
    end

    def started_at = Time.at(0, @values[:started_at], :millisecond).utc.freeze

    # @return [Hash{Symbol => Object}]
    def to_h = { **super, started_at: started_at.strftime("%Y-%m-%dT%H:%M:%S.%LZ") }

    # What grew since an earlier profile of the same process.
    #
    # @param other [Profile] the earlier one
    # @return [Difference]
    # @raise [TypeError] when the other is no profile
    # @raise [ArgumentError] when it is of another process, or was sampled at another rate or by another backend
    def -(other) = Difference.between(other, self)

    private

    def shown_values = { **super, started_at: started_at }
  end
end
