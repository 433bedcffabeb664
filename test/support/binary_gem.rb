# frozen_string_literal: true

require "fileutils"
require_relative "child_process"

# A library as a binary gem has it: with an extension for each Ruby in a directory of its own, and none for all.
module BinaryGem
  EXTENSION = File.join(ChildProcess::EXTENSION_DIRECTORY, "memscope/memscope.so")
  OWN = RUBY_VERSION[/\A\d+\.\d+/]

  # @param extensions [Hash{String => String}] a file's path, by the Ruby that it is for
  # @return [String] the directory of its library
  def self.plant(directory, extensions = { OWN => EXTENSION })
    FileUtils.cp_r(%w[lib exe].map { |name| File.join(ChildProcess::ROOT, name) }, directory)
    FileUtils.rm_f(File.join(directory, "lib/memscope/memscope.so"))
    extensions.each do |minor, file|
      FileUtils.mkdir_p(File.join(directory, "lib/memscope", minor))
      FileUtils.cp(file, File.join(directory, "lib/memscope", minor, "memscope.so"))
    end
    File.join(directory, "lib")
  end
end
