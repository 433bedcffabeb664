# frozen_string_literal: true

# Tells Memscope::Launch::RequireRecorder when each file begins to load and when it has loaded, in a program that was
# started to be measured. Evaluated as <internal:…>, like RubyGems' own require: programs that look for the file that
# requires them (Sinatra, by caller) ignore such frames. So while a file loads, no other file of memscope may be on the
# stack.
#
# Uses aliases, as do RubyGems, Bootsnap and Zeitwerk, which alias what they find here: with a prepended module, their
# aliases and this module would call each other for ever.
module Kernel
  # The names of Ruby's own require. RubyGems keeps it as gem_original_require, and calls it for each file. Bundler puts
  # it back in place of RubyGems' require, before or after this file is evaluated, and since Ruby 3.3 keeps it as
  # no_warning_require.
  own = %i[gem_original_require no_warning_require require].select do |name|
    private_method_defined?(name) && instance_method(name).source_location.nil?
  end
  alias_method :memscope_original_require, own.first
  alias memscope_original_load load
  private :memscope_original_require, :memscope_original_load

  def memscope_require(feature)
    entry = ::Memscope::Launch::RequireRecorder.enter(feature)
    loaded = memscope_original_require(feature)
  ensure
    ::Memscope::Launch::RequireRecorder.leave(entry, loaded)
  end
  private :memscope_require
  own.each { |name| alias_method name, :memscope_require }

  alias memscope_original_require_relative require_relative # no warning that it is redefined
  private :memscope_original_require_relative

  # The original method would take this file for the caller's.
  def require_relative(feature)
    path = ::Memscope::Launch::RequireRecorder.relative(feature, ::Kernel.caller_locations(1, 1).first)
    entry = ::Memscope::Launch::RequireRecorder.enter(path)
    loaded = memscope_original_require(path)
  ensure
    ::Memscope::Launch::RequireRecorder.leave(entry, loaded)
  end

  def load(file, wrap = false) # rubocop:disable Style/OptionalBooleanParameter -- Ruby's
    entry = ::Memscope::Launch::RequireRecorder.enter(file)
    loaded = memscope_original_load(file, wrap)
  ensure
    ::Memscope::Launch::RequireRecorder.leave(entry, loaded, file)
  end
  private :require_relative, :load

  # Kernel.require is Ruby's own, even with RubyGems. Where Bundler keeps it as no_warning_require, every require in a
  # bundle goes through that method.
  class << self
    own = %i[no_warning_require require].select do |name|
      method_defined?(name) && instance_method(name).source_location.nil?
    end
    alias_method :memscope_original_require, own.first
    alias memscope_original_load load
    private :memscope_original_require, :memscope_original_load

    def memscope_singleton_require(feature)
      entry = ::Memscope::Launch::RequireRecorder.enter(feature)
      loaded = memscope_original_require(feature)
    ensure
      ::Memscope::Launch::RequireRecorder.leave(entry, loaded)
    end
    own.each { |name| alias_method name, :memscope_singleton_require }
    private :memscope_singleton_require

    def load(file, wrap = false) # rubocop:disable Style/OptionalBooleanParameter -- Ruby's
      entry = ::Memscope::Launch::RequireRecorder.enter(file)
      loaded = memscope_original_load(file, wrap)
    ensure
      ::Memscope::Launch::RequireRecorder.leave(entry, loaded, file)
    end
  end
end

Module.class_eval do
  alias_method :memscope_original_autoload, :autoload
  private :memscope_original_autoload

  def autoload(name, path)
    Memscope::Launch::RequireRecorder.lazy(path)
    memscope_original_autoload(name, path)
  end
end
