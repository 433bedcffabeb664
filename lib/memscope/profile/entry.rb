# frozen_string_literal: true

require_relative "../reading"

module Memscope
  class Profile < Reading
    # What one line, method, library … holds. In a Difference all numbers but `error_bytes` say by how much they grew.
    class Entry < Record
      # @!attribute [r] name
      #   @return [String] of a line the method it is in; else the method's, the function's, the library's …
      field :name, :string, null: false
      # @!attribute [r] path
      #   @return [String, nil] the Ruby file; of a native function the object that has it
      field :path, :string
      # @!attribute [r] lineno
      #   @return [Integer, nil] of a line or a stack
      field :lineno, :count
      # @!attribute [r] live_bytes
      #   @return [Integer] estimate
      field :live_bytes, :signed_bytes, null: false
      # @!attribute [r] live_objects
      #   @return [Integer] estimate
      field :live_objects, :integer, null: false
      # @!attribute [r] allocated_bytes
      #   @return [Integer, nil] since profiling began, freed or not; nil where the allocator does not count it
      field :allocated_bytes, :signed_bytes
      # @!attribute [r] freed_bytes
      #   @return [Integer, nil] since profiling began
      field :freed_bytes, :signed_bytes
      # @!attribute [r] samples
      #   @return [Integer] live ones that the estimates are made of
      field :samples, :integer, null: false
      # @!attribute [r] error_bytes
      #   @return [Integer] one standard error of `live_bytes`
      field :error_bytes, :bytes, null: false
      # @!attribute [r] share
      #   @return [Float, nil] of all live bytes; in a Difference of all that grew, and nil for what did not
      field :share, :number
      # @!attribute [r] native
      #   @return [String, nil] the native function that most of it was allocated by: "deflateInit2_ (libz.so.1)"
      field :native, :string
      # @!attribute [r] generations
      #   @return [Hash{Integer => Integer}] live bytes by generation, oldest first
      field :generations, :hash, null: false

      # @return [String] "app/models/report.rb:41 in Report#render", "[no GVL]"
      def to_s = lineno ? "#{path}:#{lineno} in #{name}" : name
    end
  end
end
