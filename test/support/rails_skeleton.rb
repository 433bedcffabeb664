# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# Rails' own skeleton of an application, without the parts that are not needed here: generated once per test run.
module RailsSkeleton
  COMMAND = %w[bundle exec rails new living --minimal --skip-bundle --skip-git --skip-active-record
               --skip-asset-pipeline --skip-brakeman --skip-rubocop --skip-docker --skip-ci].freeze
  GENERATING = Mutex.new
  private_constant :COMMAND, :GENERATING

  # @return [String] the root of a new application in directory
  def self.copy_to(directory)
    FileUtils.cp_r(generated, directory)
    File.join(directory, "living")
  end

  def self.generated
    GENERATING.synchronize do
      @generated ||= begin
        directory = Dir.mktmpdir("memscope").tap { |made| Minitest.after_run { FileUtils.remove_entry(made) } }
        ran = ChildProcess.run_command(*COMMAND, chdir: directory,
                                                 env: { "BUNDLE_GEMFILE" => File.join(ChildProcess::ROOT, "Gemfile") })
        raise ChildProcess::Failure, ran.to_s unless ran.success?

        File.join(directory, "living")
      end
    end
  end
  private_class_method :generated
end
