# frozen_string_literal: true

require "minitest/autorun"
require "rbconfig"
require "tmpdir"

class BuildTest < Minitest::Test
  BUILD = File.expand_path("../../rakelib/build", __dir__)
  # Writes a Makefile that notes each build, and takes so long that two rakes build at once.
  EXTCONF = <<~'RUBY'
    File.write("Makefile", "all:\n\techo built >> ../builds\n\tsleep 2\n\ttouch library.so\n")
  RUBY
  RAKE = <<~RUBY.freeze
    require #{BUILD.inspect}
    extend Rake::DSL
    verbose(false)
    build_extension "extension/extconf.rb", "built", "library.so"
  RUBY

  def test_rakes_that_build_in_the_same_directory_take_turns
    Dir.mktmpdir do |directory|
      Dir.mkdir(File.join(directory, "extension"))
      File.write(File.join(directory, "extension/extconf.rb"), EXTCONF)
      rakes = Array.new(3) { Process.spawn(RbConfig.ruby, "-e", RAKE, chdir: directory) }

      assert_predicate rakes.map { |pid| Process.wait2(pid).last.success? }, :all?
      assert_path_exists File.join(directory, "built/library.so")
      assert_equal "built\n", File.read(File.join(directory, "builds"))
    end
  end
end
