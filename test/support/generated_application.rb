# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# A Rails application as `rails new` makes it, with memscope in its Gemfile, in a directory of its own. Its commands
# are run as a person runs them.
class GeneratedApplication
  # Rails' skeleton without the parts that are not needed here.
  GENERATE = %w[rails new living --minimal --skip-bundle --skip-git --skip-active-record --skip-asset-pipeline
                --skip-brakeman --skip-rubocop --skip-docker --skip-ci].freeze
  ROOT = ChildProcess::ROOT
  GEMFILE = <<~RUBY.freeze
    source Gem.sources.first.uri.to_s
    gem "rails"
    gem "puma"
    gem "memscope", path: #{ROOT.dump}
  RUBY
  BUNDLE = { "BUNDLE_PATH" => File.join(ROOT, "vendor", "bundle"), "BUNDLE_FROZEN" => nil }.freeze
  private_constant :GENERATE, :GEMFILE, :BUNDLE

  # Generates an application, yields it and removes it.
  def self.open
    raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE

    Dir.mktmpdir { |directory| yield(new(File.realpath(directory))) }
  end

  def initialize(directory)
    @root = File.join(directory, "living")
    bundle = { "BUNDLE_GEMFILE" => File.join(ROOT, "Gemfile") }
    finish(ChildProcess.run_command("bundle", "exec", *GENERATE, chdir: directory, env: bundle))
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
