# frozen_string_literal: true

# Lets a bare child find Rack: it starts faster than one with all gems of the bundle, and has less to count.
module RackPath
  # @return [Array<String>] arguments of ruby
  # @raise [Minitest::Skip] without the gem
  def self.arguments
    rack = Gem.loaded_specs["rack"] or raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE || "the gem rack is not there"
    rack.full_require_paths.map { |directory| "-I#{directory}" }
  end
end
