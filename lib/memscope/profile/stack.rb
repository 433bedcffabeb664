# frozen_string_literal: true

require_relative "../value/reading"

module Memscope
  class Profile < Reading
    # One function or line in the stacks of a profile.
    class Frame < Record
      # @return [Symbol] :ruby, :native, or :state, the reason why frames are missing
      field :kind, :symbol, null: false, one_of: %i[ruby native state]
      # @return [String] "Report#render", "deflateInit2_", "libz.so.1+0x1a2b", "[during GC]"
      field :name, :string, null: false
      # @return [String, nil] the Ruby file; nil for methods that are written in C
      field :path, :string
      # @return [Integer, nil]
      field :lineno, :count
      # @return [String, nil] for a Ruby line, "nokogiri 1.15.4", "Ruby standard library" or "application"; for a native
      #   function, the path of its shared object or executable
      field :library, :string

      # @return [Boolean] whether it is a line of a file; false for <internal:…>
      def file? = kind == :ruby && !path.nil? && !path.start_with?("<internal:")

      # @return [Boolean] false for a native function of a stripped object
      def named? = !name.match?(/\+0x\h+\z/)

      # @return [String, nil] "app/models/report.rb:41"
      def place = path && [path, lineno].compact.join(":")

      # @return [String] "Report#render app/models/report.rb:41", "deflateInit2_"
      def to_s = [name, place].compact.join(" ")
    end

    # Allocations with the same frames, thread, tag, generation and class. In a growth, the numbers in GROWING are
    # growth.
    class Stack < Record
      # @return [Array<Integer>] indexes into the profile's frames, the allocating function first
      field :frames, :list, null: false
      # @return [String, nil] set by Memscope.tag
      field :tag, :string
      # @return [String, nil] the thread's name
      field :thread, :string
      # @return [String, nil] the objects' class; nil for memory of malloc
      field :class_name, :string, sparse: true
      # @return [Integer] 0 also if the stack was merged with others because it has no live memory
      field :generation, :count, null: false
      # @return [Integer] estimate
      field :live_bytes, :signed_bytes, null: false
      # @return [Integer] estimate
      field :live_objects, :integer, null: false
      # @return [Integer] samples of live blocks, the basis of both estimates
      field :samples, :integer, null: false
      # @return [Integer] one standard error of `live_bytes`
      field :error_bytes, :bytes, null: false
      # @return [Integer, nil] one standard error of `live_objects`, in a profile of objects
      field :error_objects, :count, sparse: true
      # @return [Array<Array<Integer>>, nil] in a profile of objects, for each window with samples: its number, the
      #   allocations that it stands for, and the objects and bytes that it adds to the estimates
      field :shares, :shares, sparse: true
      # @return [Integer, nil] since profiling began, freed or not
      field :allocated_bytes, :signed_bytes
      # @return [Integer, nil]
      field :allocated_objects, :integer
      # @return [Integer, nil] since profiling began
      field :freed_bytes, :signed_bytes
      # @return [Integer, nil]
      field :freed_objects, :integer
      together :allocated_bytes, :allocated_objects, :freed_bytes, :freed_objects

      # The numbers that are growth in a growth.
      GROWING = %i[live_bytes live_objects samples allocated_bytes allocated_objects freed_bytes freed_objects].freeze
    end

    # What holds the objects that one line allocated: a path to many of the sampled objects, found in a heap graph.
    class Holder < Record
      # @return [String] the line's file
      field :path, :string, null: false
      # @return [Integer]
      field :lineno, :count, null: false
      # @return [Array<String>] the objects on the path, each with how it refers to the next (HeapGraph::Path#links)
      field :links, :strings, null: false
      # @return [Integer] how many of the sampled objects have a path like this
      field :count, :count, null: false
      # @return [Integer] sampled objects of the line that are reachable
      field :sampled, :count, null: false
      # @return [Time] when the path was found
      field :found_at, :time, null: false

      # @param unicode [Boolean] false: plain ASCII, except for names
      # @return [String] "Bus::HANDLERS → Array → Order"
      def to_s(unicode: true) = links.join(unicode ? " → " : " -> ").then { |text| unicode ? text : text.tr("×", "x") }
    end

    # The memory of one line, method, library …. In a growth, all numbers except the errors are growth.
    class Entry < Record
      # @return [String] for a line, its method; otherwise the name of the method, function, library …
      field :name, :string, null: false
      # @return [String, nil] the Ruby file; for a native function, its shared object or executable
      field :path, :string
      # @return [Integer, nil] the line's number; for a stack, the number of its nearest line; otherwise nil
      field :lineno, :count
      # @return [Integer] estimate
      field :live_bytes, :signed_bytes, null: false
      # @return [Integer] estimate
      field :live_objects, :integer, null: false
      # @return [Integer, nil] since profiling began, freed or not; nil if freed memory is not counted
      field :allocated_bytes, :signed_bytes
      # @return [Integer, nil] since profiling began
      field :freed_bytes, :signed_bytes
      # @return [Integer] samples of live blocks, the basis of the estimates
      field :samples, :integer, null: false
      # @return [Integer] one standard error of `live_bytes`
      field :error_bytes, :bytes, null: false
      # @return [Integer, nil] one standard error of `live_objects`, in a profile of objects
      field :error_objects, :count, sparse: true
      # @return [Float, nil] share of all live bytes; in a growth, of all growth, and nil if this entry did not grow
      field :share, :number
      # @return [String, nil] the native function that allocated most of this memory: "deflateInit2_ (libz.so.1)"
      field :native, :string
      # @return [Array<Array(String, Integer)>] for a line or a method: the lines of the application that it was called
      #   from, "/srv/shop/app/models/report.rb:41", with their live bytes, the most first; without the line itself
      field :callers, :list, null: false
      # @return [Array<Array(String, Integer)>] for a line of the application: the lines that it called and that
      #   allocated, with their live bytes, the most first; without the line itself
      field :lines, :list, null: false
      # @return [Hash{Integer => Integer}] live bytes by generation, oldest first
      field :generations, :sizes, null: false

      # The fewest samples from which a number is estimated.
      ENOUGH_SAMPLES = 10

      # @return [Boolean] whether there are enough samples for its numbers to mean something
      def estimated? = samples.abs >= ENOUGH_SAMPLES

      # @return [String] "app/models/report.rb:41 in Report#render", "[no GVL]"
      def to_s = lineno ? "#{path}:#{lineno} in #{name}" : name
    end

    # The cost of sampling itself.
    class Overhead < Record
      # @return [Integer] samples taken since profiling began, including samples of blocks that have since been freed
      field :samples_taken, :count, null: false
      # @return [Integer] wall time spent taking samples, summed over all threads
      field :nanoseconds, :count, null: false
      # @return [Integer] resident memory of the tables of stacks, frames, names and live samples, in whole pages
      field :table_bytes, :bytes, null: false
      # @return [Integer] samples for which a table had no room; their bytes are missing from the estimates
      field :dropped_samples, :count, null: false
      # @return [Integer] missed frees of sampled blocks, found only when the same address was sampled again; until then
      #   the block counted as live
      field :lost_frees, :count, null: false
      # @return [Integer, nil] what sampling adds to the allocator's active bytes: jemalloc places each sampled small
      #   block in an extent of its own
      field :inflated_bytes, :bytes
      # @return [Integer, nil] imports of malloc and free that call memscope instead
      field :patched_imports, :count
      # @return [Integer, nil] loaded objects (the executable and shared libraries) that have patched imports
      field :patched_objects, :count
      # @return [Float, nil] of a profile of objects: the share of the process's CPU time that it may take
      field :budget, :number, sparse: true
      # @return [Float, nil] the share of the CPU time that the profile has taken; nil if no CPU time has passed
      field :cpu_share, :number, sparse: true
      # @return [Integer, nil] the part of `nanoseconds` that made garbage collections longer
      field :gc_nanoseconds, :count, sparse: true
      # @return [Float, nil] the share of all allocations that were watched
      field :watched_share, :number, sparse: true
      # @return [Integer, nil] how often half of the samples were dropped to make room
      field :thinned, :count, sparse: true
      # @return [Integer, nil] how often Ruby had switched the profile's hooks off, and memscope switched them on again
      field :rearmed, :count, sparse: true
      # @return [Integer, nil] garbage collections that the profile did not see: samples of objects that they may have
      #   freed were dropped
      field :missed_collections, :count, sparse: true
    end
  end
end
