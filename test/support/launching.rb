# frozen_string_literal: true

require_relative "child_process"
require "fileutils"
require "tmpdir"

# For tests of commands that become another program: a directory for its files, with a space in its path, and memscope
# in a process of its own.
module Launching
  EXECUTABLE = File.join(ChildProcess::ROOT, "exe", "memscope")
  # The traces of memscope that a program can find in its environment.
  TRACES = 'ENV.keys.grep(/\AMEMSCOPE_AUTORUN/) + [ENV["RUBYOPT"], ENV["RUBYLIB"]].compact'

  # A Ruby program, without RubyGems, which take most of the time that Ruby takes to start.
  RUBY = [RbConfig.ruby, *("--disable-gems" if RUBY_VERSION < "4")].freeze

  attr_reader :directory

  def setup
    super
    skip_under_sanitizer
    @directory = File.join(Dir.mktmpdir("memscope"), "a program")
    Dir.mkdir(@directory)
    File.chmod(0o755, File.dirname(@directory))
  end

  def teardown
    FileUtils.remove_entry(File.dirname(@directory)) if @directory
    super
  end

  def ruby(script) = [*RUBY, "-e", script]

  # The path of a file of the program.
  def path(name) = File.join(directory, name)

  # Makes a file of the program, executable.
  def make(name, text)
    File.write(path(name), text)
    File.chmod(0o755, path(name))
    path(name)
  end

  def memscope(*arguments, gems: false) = [*ChildProcess.ruby(gems: gems), EXECUTABLE, *arguments]

  # Runs memscope, and waits for the program that it becomes.
  def launch(*arguments, gems: false, **options)
    ChildProcess.run_command(*memscope(*arguments, gems: gems), **options)
  end

  def assert_exit(status, ran, out: nil, err: nil)
    assert_equal status, ran.status.exitstatus, ran.to_s
    assert_equal out, ran.out, ran.to_s if out
    assert_operator err, :===, ran.err, ran.to_s if err
  end

  # A copy of memscope whose own path has a space.
  def spaced_memscope
    copy = path("memscope copy")
    FileUtils.mkdir_p(File.join(copy, "lib"))
    FileUtils.cp_r(File.join(ChildProcess::ROOT, "lib", "."), File.join(copy, "lib"))
    FileUtils.mkdir_p(File.join(copy, "exe"))
    FileUtils.cp(EXECUTABLE, File.join(copy, "exe"))
    extension = File.join(ChildProcess::EXTENSION_DIRECTORY, "memscope", "memscope.so")
    FileUtils.cp(extension, File.join(copy, "lib", "memscope"))
    [RbConfig.ruby, "-I#{File.join(copy, 'lib')}", File.join(copy, "exe", "memscope")]
  end

  # Programs end in the same way with and without memscope.
  def assert_ends_alike(*prefix)
    ["exit 0", "exit 3", "exit 255", "raise 'no'", "Process.kill(:TERM, $$); sleep", "Process.kill(:INT, $$); sleep",
     "Process.kill(:KILL, $$); sleep", "exit! 4"].each do |script|
      program = ruby(script)
      alone, launched = [program, memscope(*prefix, "--", *program)].map { |one| ChildProcess.run_command(*one) }

      assert_equal [alone.status.exitstatus, alone.status.termsig],
                   [launched.status.exitstatus, launched.status.termsig], "#{script}: #{launched}"
      yield script, launched if block_given?
    end
  end
end
