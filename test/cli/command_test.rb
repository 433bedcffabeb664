# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require_relative "../support/word_files"
require "memscope/cli/cli"
require "stringio"

# The messages of commands, and of memscope in programs.
class CommandWordsTest < MemscopeTest
  ROOM = File.expand_path("../../lib/memscope/cli", __dir__)
  FILES = %w[command.words launch.words launch/inside.words].freeze

  def test_each_message_is_used_and_each_that_is_used_exists
    known = FILES.flat_map { |file| WordFiles.read(File.join(ROOM, file)).keys }
    code = Dir[File.join(ROOM, "**/*.rb")].map { |path| File.read(path) }.join

    assert_operator known.size, :>, 40
    assert_empty known.grep_v(/\A(?:#{code.scan(/(?<!:):(\w+)/).flatten.uniq.join('|')})\z/)
    assert_empty code.scan(/\b(?:usage_error|failure|say|complain|worded|fill)\(:(\w+)/).flatten.map(&:to_sym) - known
  end
end

# memscope report, doctor and purge for another process.
class CLIPidTest < MemscopeTest
  include Listening

  Ran = Struct.new(:status, :out, :err)

  def test_a_process_that_listens
    process = listening
    ran = memscope("report", "--pid", process.pid.to_s)

    assert_equal [0, ""], [ran.status, ran.err]
    assert_match(/pid #{process.pid}$/, ran.out)
    assert_includes ran.out, "= RSS of this reading, to the byte"
    ran = memscope("report", "--pid", process.pid.to_s, "--mappings", "--arenas", "--json")

    assert_equal([["mappings", process.pid], ["arenas", process.pid]],
                 ran.out.lines.map { |line| JSON.parse(line).values_at("kind", "pid") })
    ran = memscope("doctor", "--pid", process.pid.to_s, "--json")

    assert_equal [process.pid, ""], [Memscope::Diagnosis.from_json(ran.out).pid, ran.err]
    File.write(File.join(@directory, "since"), ran.out)
    ran = memscope("doctor", "--pid", process.pid.to_s, "--since", File.join(@directory, "since"))

    assert_match(/pid #{process.pid}$/, ran.out)
    assert_equal process.pid, Memscope::Lint.from_h(JSON.parse(memscope("doctor", "--settings", "--json", "--pid",
                                                                        process.pid.to_s).out)).pid
  end

  def test_purge
    process = listening
    ran = memscope("purge", "--pid", process.pid.to_s, "gc", "--json")
    result = Memscope::Purge::Result.from_h(JSON.parse(ran.out))

    assert_equal [0, process.pid, [:gc]], [ran.status, result.pid, result.levers.map(&:name)]
    assert_includes memscope("purge", "--pid", process.pid.to_s, "--dry-run").out, "nothing was changed"
    assert_fails(64, /\Amemscope purge: a lever: given "rm", allowed: gc/, "purge", "--pid", process.pid.to_s, "rm")
  end

  def test_one_that_does_not
    process = start
    pid = process.pid.to_s
    silent = "process #{pid} does not listen: run memscope attach --pid #{pid} (with --actions for profile and " \
             "purge), or let it require \"memscope\" and start it with MEMSCOPE_LISTEN=1"
    ran = memscope("report", "--no-attach", "--pid", pid)

    assert_equal [0, "memscope report: #{silent}, so this is the kernel's view only\n"], [ran.status, ran.err]
    assert_match(/pid #{pid} seen from outside/, ran.out)
    assert_equal "external_process", JSON.parse(memscope("report", "--no-attach", "--pid", pid, "--json").out)["kind"]
    kept = %w[--no-attach]

    [["report", *kept, "--deep"], ["report", *kept, "--arenas"], ["doctor", *kept], %w[purge]].each do |command|
      assert_fails(74, "memscope #{command.first}: #{silent}\n", *command, "--pid", pid)
    end
  end

  # A process that listens at a path of its own cannot be found by its pid.
  def test_a_socket
    path, process = listening_at_a_path

    assert_match(/this is the kernel's view only/, memscope("report", "--no-attach", "--pid", process.pid.to_s).err)
    [%w[report], %w[doctor], %w[purge gc], %w[report --arenas]].each do |command|
      assert_match(/\bpid #{process.pid}$/, memscope(*command, "--socket", path).out)
    end
    assert_fails(64, /\Amemscope report: --pid and --socket exclude each other$/,
                 "report", "--socket", path, "--pid", process.pid.to_s)
    assert_fails(64, "memscope top: needs a terminal. Without one, use memscope ps, or memscope report --pid N\n",
                 "top", "--socket", path)
    process.stop

    assert_fails(74, "memscope top: no process listens at #{path}: No such file or directory\n",
                 "top", "--socket", path)
  end

  def test_sockets_that_are_refused
    path, = listening_at_a_path
    link, file = %w[link file].map { |name| File.join(sockets, name) }
    File.symlink(path, link)
    File.write(file, "")

    { "run.sock" => [64, "a socket's path: given \"run.sock\", allowed: an absolute path of at most 107 bytes"],
      "#{path}x" => [74, "no process listens at #{path}x: No such file or directory"],
      link => [74, "#{link} is a link; allowed: a socket"],
      file => [74, "#{file} is a file; allowed: a socket"] }.each do |given, (status, message)|
      assert_fails(status, "memscope report: #{message}\n", "report", "--socket", given)
    end
    File.chmod(0o755, sockets)

    assert_fails(74, "memscope purge: the directory for sockets #{sockets} has mode 0755; allowed: a directory of " \
                     "uid #{Process.euid} with mode 0700\n", "purge", "--socket", path)
  end

  def test_a_socket_of_another_user
    skip_unless_root
    path, process = listening_at_a_path
    skip_unless_readable_for(65_534)
    File.chmod(0o711, @directory)
    stranger = start("require 'memscope/remote/client'; Process::UID.change_privilege(65_534)")
    stranger.tell("Memscope::Client.at(#{path.inspect}) rescue [$!.class, $!.message]")

    assert_match(/Unreachable, .*no process listens at #{path}: Permission denied/, stranger.gets)
    assert_equal process.pid, Memscope::Client.at(path).pid
    File.chown(65_534, nil, sockets)

    assert_raises(Memscope::Client::Unreachable) { Memscope::Client.at(path) }
  end

  def test_none
    gone = Process.spawn("true").tap { |pid| Process.wait(pid) }
    %w[report doctor purge].each do |command|
      assert_fails(74, "memscope #{command}: there is no process #{gone}\n", command, "--pid", gone.to_s)
      assert_fails(64, /\Amemscope #{command}: --pid: given "0", allowed: a process ID, as `memscope ps`/,
                   command, "--pid", "0")
    end
  end

  private

  def listening_at_a_path
    path = File.join(sockets, "own")
    Dir.mkdir(sockets, 0o700)
    [path, start("Memscope.listen(path: #{path.inspect})")]
  end

  # Runs the command in this process.
  def memscope(*arguments)
    out = StringIO.new
    err = StringIO.new
    Ran.new(Memscope::CLI.run(arguments, out: out, err: err), out.string, err.string)
  end

  def assert_fails(status, message, *arguments)
    ran = memscope(*arguments)

    assert_equal [status, ""], [ran.status, ran.out], ran.err
    assert_operator message, :===, ran.err
  end
end
