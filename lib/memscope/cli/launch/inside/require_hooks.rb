# frozen_string_literal: true

# Calls Memscope::Launch::RequireRecorder when each file begins to load and when it has loaded, in a program that was
# started to be measured. Evaluated as <internal:…>, like RubyGems' own require: programs that look for the file that
# requires them (Sinatra, by caller) ignore such frames. So while a file loads, no other file of memscope may be on the
# stack.
#
# Uses aliases, as do RubyGems, Bootsnap and Zeitwerk, which alias what they find here: with a prepended module, their
# aliases and this module would call each other forever.
#
# Each name of Ruby's own require is replaced. RubyGems keeps it as gem_original_require, and calls it for each file.
# Bundler puts it back in place of RubyGems' require, before or after this file is evaluated, and since Ruby 3.3 keeps
# it as no_warning_require. Kernel.require is Ruby's own, even with RubyGems. Where Bundler keeps it as
# no_warning_require, every require in a bundle goes through that method.
{ Kernel => %i[gem_original_require no_warning_require require],
  Kernel.singleton_class => %i[no_warning_require require] }.each do |receiver, names|
  receiver.module_eval do
    own = names.select do |name|
      (method_defined?(name) || private_method_defined?(name)) && instance_method(name).source_location.nil?
    end
    alias_method :memscope_original_require, own.first
    alias_method :memscope_original_load, :load

    def memscope_require(feature)
      entry = Memscope::Launch::RequireRecorder.enter(feature)
      loaded = memscope_original_require(feature)
    ensure
      Memscope::Launch::RequireRecorder.leave(entry, loaded)
    end
    own.each { |name| alias_method name, :memscope_require }

    def load(file, wrap = false) # rubocop:disable Style/OptionalBooleanParameter -- Ruby's
      entry = Memscope::Launch::RequireRecorder.enter(file)
      loaded = memscope_original_load(file, wrap)
    ensure
      Memscope::Launch::RequireRecorder.leave(entry, loaded, file)
    end
    private(*own, :load) if receiver.equal?(Kernel)
    private :memscope_original_require, :memscope_original_load, :memscope_require
  end
end

module Kernel
  alias memscope_original_require_relative require_relative # no warning that it is redefined

  # The original method would take this file for the caller's.
  def require_relative(feature)
    memscope_require(::Memscope::Launch::RequireRecorder.relative(feature, ::Kernel.caller_locations(1, 1).first))
  end
  private :require_relative, :memscope_original_require_relative
end

Module.class_eval do
  alias_method :memscope_original_autoload, :autoload
  private :memscope_original_autoload

  def autoload(name, path)
    Memscope::Launch::RequireRecorder.lazy(path)
    memscope_original_autoload(name, path)
  end
end
