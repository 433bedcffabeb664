# frozen_string_literal: true

require_relative "../value/reading"

module Memscope
  # Which allocator serves this process's malloc, the proof of that, and the allocator's settings.
  #
  # A loaded library proves nothing: an allocator is named only when a block from malloc has been shown to be its own.
  class Allocator < Reading
    # All possible names.
    NAMES = %i[jemalloc glibc mimalloc tcmalloc musl unknown].freeze

    # One setting of the allocator that serves malloc.
    class Setting < Record
      # @return [String] the allocator's own name for it
      field :name, :string, null: false
      # @return [Integer, String, Boolean, nil] the effective value; nil if the allocator neither reports it nor has
      #   rules that determine it (the reading's reasons say why, under the setting's name), or has no such setting
      field :value, :any
      # @return [String] what set the value: "MALLOC_CONF", "/etc/malloc.conf", "malloc_conf" (the program's variable),
      #   "--with-malloc-conf" (compiled into jemalloc), "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", …, "default"
      field :source, :string, null: false
      # @return [String, nil] the text for the setting in the highest-priority source that names the setting
      field :given, :string
      # @return [String, nil] why that text has no effect
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
      # @return [String] the prefix of its function names, for instance "_rjem_"; empty if they have none
      field :prefix, :string, null: false
      # @return [Integer, nil] bytes that a library has allocated from it, by its own statistics; nil if it reports none
      field :allocated_bytes, :bytes, sparse: true
      # @return [String] why it does not serve malloc and, if known, whether a library allocates from it
      field :reason, :string, null: false
    end

    # @return [Symbol] one of NAMES
    field :name, :symbol, null: false, one_of: NAMES
    # @return [String, nil] upstream's version
    field :version, :string
    # @return [String, nil] the shared object, or the executable, whose code serves malloc
    field :path, :string
    # @return [Boolean] false for :unknown only
    field :proved?, :boolean, null: false
    # @return [String] the evidence; for :unknown, why there is none
    field :proof, :string, null: false
    field :settings, [Setting], null: false
    # @return [Array<Other>] allocators in the process that do not serve malloc
    field :others, [Other], null: false

    # `to_h` keeps the field's list, because settings have an order; the reader below returns them by name.
    remove_method :settings

    # @return [Hash{Symbol => Setting}] frozen, by name
    def settings = @settings.to_h { |setting| [setting.name.to_sym, setting] }.freeze

    class << self
      # (see Memscope.allocator)
      def read = capture(body)

      # @api private
      # @return [Hash{Symbol => Object}] for `capture`
      def body
        @at_start ||= at_start
        Native.allocator.update(@at_start) { |_reasons, now, at_start| { **at_start, **now } }
      end

      private

      # The settings and their reasons, read once: allocators take their settings when the process starts.
      def at_start
        given = Native.allocator_settings
        given = MallocConf.attribute(**given) if given[:conf_variable]
        { settings: given[:settings].map { |setting| Setting.capture(setting) }.freeze,
          reasons: Reasons.sentences(given[:reasons]) }.freeze
      end
    end

    # @return [String, nil] the version without the build's suffix: "5.3.0" for "5.3.0-0-g54eaed1d8b56"
    def short_version = version && (version[/\A\d+(\.\d+)+/] || version)
  end

  # No autoload: a trap handler can be the first to ask for jemalloc's settings.
  require_relative "malloc_conf" if Native.allocator_settings[:conf_variable]
end
