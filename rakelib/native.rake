# frozen_string_literal: true

require_relative "native"

desc "Build the gems into pkg/: the source gem, and one with compiled extensions for each processor, for the Rubies " \
     "below the prefixes in MEMSCOPE_NATIVE_RUBIES, separated by colons (by default, only for this one)"
task native: :build do
  NativeGems.build(NativeGems.prefixes).each { |path| puts "#{path}: #{File.size(path) / 1024} KiB" }
end
