# frozen_string_literal: true

require_relative "reading"

module Memscope
  # Which Ruby lines hold malloc memory: the allocations sampled since profiling began that are still live. Each number
  # is an estimate, beside its standard error and its number of samples.
  #
  #   profile = Memscope::MallocProfile.snapshot
  #   profile.by(:line).first               # => the line that holds most
  #   puts profile                          # the same for people
  #   (later - profile).by(:line).first     # => the line that grew most
  #   File.write("heap.html", profile.to_html)
  class Profile < Reading
    require_relative "profile/stack" # the types of its fields
    require_relative "profile/sampled"
    include Sampled

    autoload :Difference, File.join(__dir__, "profile/difference.rb")
    autoload :Formats, File.join(__dir__, "profile/formats.rb")
    autoload :Grouping, File.join(__dir__, "profile/grouping.rb")
    autoload :Leaks, File.join(__dir__, "profile/leaks.rb")
    autoload :Libraries, File.join(__dir__, "profile/libraries.rb")

    # The cost of sampling itself.
    class Overhead < Record
      # @return [Integer] since profiling began, freed ones included
      field :samples_taken, :count, null: false
      # @return [Integer] of taking them
      field :nanoseconds, :count, null: false
      # @return [Integer] resident memory of the tables of stacks, frames, names and live samples, in whole pages
      field :table_bytes, :bytes, null: false
      # @return [Integer] for which a table had no room; their bytes are missing from the estimates
      field :dropped_samples, :count, null: false
      # @return [Integer] of sampled blocks, noticed too late: they may count as live
      field :lost_frees, :count, null: false
      # @return [Integer, nil] growth of the allocator's active bytes by sampling: jemalloc places each sampled
      #   small block in its own extent
      field :inflated_bytes, :bytes
      # @return [Integer, nil] imports of malloc and free that call memscope instead
      field :patched_imports, :count
      # @return [Integer, nil] programs and libraries with these imports
      field :patched_objects, :count
    end

    # @return [Symbol] :jemalloc (its own profiler) or :imports (patched imports)
    field :backend, :symbol, null: false, one_of: %i[jemalloc imports]
    # @return [Integer] bytes allocated between two samples, on average
    field :rate_bytes, :count, null: false
    # @return [Boolean] whether it was running when this was read
    field :running?, :boolean, null: false
    # @return [Time] UTC, to the millisecond, when profiling began
    field :started_at, :time, null: false
    # @return [Integer] the current one, which new allocations belong to
    field :generation, :count, null: false
    # @return [Array<Frame>] of all stacks
    field :frames, [Frame], null: false
    # @return [Array<Stack>] of live allocations; their numbers sum to `live_bytes` and `samples`
    field :stacks, [Stack], null: false
    # @return [Integer] allocated since profiling began and not freed
    field :live_bytes, :bytes, null: false
    # @return [Integer] live ones, the basis of all estimates
    field :samples, :count, null: false
    # @return [Integer] one standard error of `live_bytes`
    field :error_bytes, :bytes, null: false
    # @return [Integer, nil] all live bytes by the allocator's own count, older blocks included
    field :allocator_live_bytes, :bytes
    # @return [Float, nil] `live_bytes` as a share of the growth in the allocator's count meanwhile; nil where that
    #   is too little to compare
    field :coverage, :number
    # @return [Overhead]
    field :overhead, Overhead, null: false

    # Adds the library of each line: only the profiled process knows the directories of its Ruby.
    #
    # @param body [Hash{Symbol => Object}] from the extension
    # @param envelope [Hash{Symbol => Object}, nil]
    def self.capture(body, envelope = nil)
      super(body.merge(frames: body[:frames].map { |frame| Libraries.attributed(frame) }), envelope)
    end

    # The growth since an earlier profile of the same process.
    #
    # @param other [Profile] the earlier one
    # @return [Difference]
    # @raise [TypeError] unless the other is a profile
    # @raise [ArgumentError] when it is of another process, rate or backend
    def -(other) = Difference.between(other, self)

    private

    def shown_values = { **super, started_at: started_at }
  end
end
