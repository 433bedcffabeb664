# frozen_string_literal: true

module Memscope
  class Requires < Reading
    # A file that was loaded, or the program itself, and what it cost: the memory in use at the end that was allocated
    # while this file was being loaded, but not while a file that it required was being loaded.
    class Node < Record
      # @return [Integer] its number, by the order in which files began to load; 0 is the program
      field :id, :count, null: false
      # @return [Integer, nil] number of the file that required it; nil for the program
      field :parent, :count
      # @return [String] path; for a file that raised an exception, and so has no path, the feature that was required
      field :path, :string, null: false
      # @return [String, nil] the gem that it belongs to; "ruby" for Ruby's own library; "application" for a file below
      #   the working directory; nil for any other file
      field :gem, :string
      # @return [Boolean] whether autoload, or Zeitwerk, loaded it when a constant was first used
      field :lazy?, :boolean, null: false
      # @return [Integer] its objects that are alive
      field :objects, :count, null: false
      # @return [Integer] bytes of the slots of its live objects
      field :objects_bytes, :bytes, null: false
      # @return [Integer] malloc's bytes in use, as malloc counts them
      field :malloc_bytes, :signed_bytes, null: false
      # @return [Integer] resident bytes of the libraries that it mapped
      field :mapped_bytes, :bytes, null: false

      # @return [Integer] bytes of objects and of malloc
      def bytes = objects_bytes + malloc_bytes
    end

    # A gem, with what its own files cost.
    class GemCost < Record
      # @return [String] as in Node#gem; "(elsewhere)" if that is nil
      field :name, :string, null: false, identity: true
      # @return [Integer] its files that were loaded
      field :files, :count, null: false
      # @return [Integer] how many of its files autoload loaded
      field :lazy_files, :count, null: false
      # @return [Integer] bytes of its files' live objects, in this program's load order
      field :objects_bytes, :bytes, null: false
      # @return [Integer] malloc's bytes in use
      field :malloc_bytes, :signed_bytes, null: false
      # @return [Integer] resident bytes of the libraries that it mapped
      field :mapped_bytes, :bytes, null: false
      # @return [Array<String>] the other gems that require one of its files, whether or not the file was loaded already
      field :required_by, :list, null: false

      # @return [Symbol] the number by which a Diff sorts
      def self.weight = :bytes

      # @return [Integer] bytes of objects and of malloc
      def bytes = objects_bytes + malloc_bytes
    end
  end
end
