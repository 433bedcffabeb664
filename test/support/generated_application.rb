# frozen_string_literal: true

require "tmpdir"
require_relative "rails_skeleton"

# A Rails application as `rails new` makes it, with memscope in its Gemfile, in a directory of its own. Its commands
# are run as a user would.
class GeneratedApplication
  ROOT = ChildProcess::ROOT
  GEMFILE = <<~RUBY.freeze
    source Gem.sources.first.uri.to_s
    gem "rails"
    gem "puma"
    gem "memscope", path: #{ROOT.dump}
  RUBY
  BUNDLE = { "BUNDLE_PATH" => File.join(ROOT, "vendor", "bundle"), "BUNDLE_FROZEN" => nil }.freeze
  private_constant :GEMFILE, :BUNDLE

  # Generates an application, yields it and removes it.
  def self.open
    raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE

    Dir.mktmpdir { |directory| yield(new(File.realpath(directory))) }
  end

  def initialize(directory)
    @root = RailsSkeleton.copy_to(directory)
    write("Gemfile", GEMFILE)
    finish(run("bundle", "install", "--local"))
  end

  # @return [String] the text of one of its files
  def read(path) = File.read(File.join(@root, path))

  def write(path, text) = File.write(File.join(@root, path), text)

  # @return [ChildProcess::Result]
  def run(*command, env: {})
    ChildProcess.run_command(*command, chdir: @root, env: {
                               **BUNDLE, "BUNDLE_GEMFILE" => File.join(@root, "Gemfile"),
                                         "SECRET_KEY_BASE_DUMMY" => "1", **env
                             })
  end

  private

  def finish(ran)
    raise ChildProcess::Failure, ran.to_s unless ran.success?
  end
end
