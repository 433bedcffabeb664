# frozen_string_literal: true

require "fileutils"
require "tmpdir"

# Gives each test of a class a directory of its own, @directory, without symbolic links in its path.
module InDirectory
  def setup
    super
    @directory = File.realpath(Dir.mktmpdir)
  end

  def teardown
    FileUtils.remove_entry(@directory)
    super
  end
end
