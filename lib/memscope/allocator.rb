# frozen_string_literal: true

require_relative "native"
require_relative "reading"

module Memscope
  # Which allocator serves this process's malloc, how that was proved, and how it is set.
  #
  # A loaded library proves nothing: an allocator is named only after a block of malloc's has shown whose it is.
  class Allocator < Reading
    # What an allocator can be found to be.
    NAMES = %i[jemalloc glibc mimalloc tcmalloc musl unknown].freeze

    # One setting of the allocator that serves malloc.
    class Setting < Record
      # @return [String] in the allocator's own words
      field :name, :string, null: false
      # @return [Integer, String, Boolean, nil] the effective one; nil where the allocator does not say and its rules
      #   do not tell (the reading's reasons say why, under the setting's name), or has no such setting
      field :value, :any
      # @return [String] where the value came from: "MALLOC_CONF", "/etc/malloc.conf", "malloc_conf" (the program's
      #   variable), "--with-malloc-conf" (compiled into jemalloc), "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", …,
      #   "default"
      field :source, :string, null: false
      # @return [String, nil] the text of the strongest source that names it
      field :given, :string
      # @return [String, nil] why the text did not take effect
      field :ignored, :string
    end

    # An allocator in the process that does not serve malloc.
    class Other < Record
      # @return [Symbol]
      field :name, :symbol, null: false, one_of: NAMES
      # @return [String, nil]
      field :version, :string
      # @return [String] the shared object, or the executable
      field :path, :string, null: false
      # @return [String] of its functions' names, "_rjem_" for instance; empty for none
      field :prefix, :string, null: false
      # @return [String] why it is not the one
      field :reason, :string, null: false
    end

    # @return [Symbol] one of NAMES
    field :name, :symbol, null: false, one_of: NAMES
    # @return [String, nil] as upstream says it
    field :version, :string
    # @return [String, nil] the shared object, or the executable, whose code serves malloc
    field :path, :string
    # @return [Boolean] false for :unknown only
    field :proved?, :boolean, null: false
    # @return [String] what was seen; for :unknown what was not
    field :proof, :string, null: false
    field :settings, [Setting], null: false
    # @return [Array<Other>] allocators in the process that do not serve malloc
    field :others, [Other], null: false

    # Outside it is a list, as the allocator has its settings in an order.
    remove_method :settings

    # @return [Hash{Symbol => Setting}] frozen, by name
    attr_reader :settings

    # What Memscope.allocator does.
    #
    # @return [Allocator]
    def self.read = capture(Native.allocator)

    # @return [String, nil] without what a build adds: "5.3.0" of "5.3.0-0-g54eaed1d8b56"
    def short_version = version && (version[/\A\d+(\.\d+)+/] || version)

    def initialize(values)
      @settings = values[:settings].to_h { |setting| [setting.name.to_sym, setting] }.freeze
      super
    end
  end
end
