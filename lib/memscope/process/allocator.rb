# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # Which allocator serves this process's malloc, the proof of that, and the allocator's settings.
  #
  # A loaded library proves nothing: an allocator is named only when a block from malloc has been shown to be its own.
  class Allocator < Reading
    # All possible names.
    NAMES = declared(:name).one_of
    # The allocators whose settings only environment variables tell.
    # @api private
    SET_BY_VARIABLES = %i[mimalloc tcmalloc].freeze

    # `to_h` keeps the field's list, because settings have an order. The reader below returns them by name.
    remove_method :settings

    # @return [Hash{Symbol => Setting}] frozen, by name
    def settings = @settings.to_h { |setting| [setting.name.to_sym, setting] }.freeze

    # (see Memscope.allocator)
    def self.read(native: Native) = capture(body(native))

    # @api private
    def self.body(native = Native)
      allocator = native.allocator
      fixed = native.own? ? (@at_start ||= at_start(native, allocator)) : at_start(native, allocator)
      allocator.update(fixed) { |_reasons, now, at_start| { **at_start, **now } }
    end

    # The settings and their reasons. Allocators take their settings when the process starts, so this process's are read
    # once.
    def self.at_start(native, allocator)
      given = native.allocator_settings
      given = MallocConf.attribute(**given) if given[:conf_variable]
      if SET_BY_VARIABLES.include?(allocator[:name])
        given = { **given, settings: MallocVariables.settings(allocator[:name], **native.allocator_inputs) }
      end
      { settings: given[:settings].map { |setting| Setting.capture(setting) }.freeze,
        reasons: Reasons.sentences(given[:reasons]) }.freeze
    end
    private_class_method :at_start

    # @return [String, nil] the version without the build's suffix: "5.3.0" for "5.3.0-0-g54eaed1d8b56"
    def short_version = version && (version[/\A\d+(\.\d+)+/] || version)
  end

  # No autoload: a trap handler can be the first to ask for the settings.
  require_relative "malloc_conf" if Native.allocator_settings[:conf_variable]
  require_relative "malloc_variables" if Allocator::SET_BY_VARIABLES.include?(Native.allocator[:name])
end
