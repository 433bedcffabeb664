# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/remote/sockets"
require "tmpdir"

# Where sockets are, and who may have them.
class SocketsTest < MemscopeTest
  include Listening

  NOBODY = 65_534

  def test_another_users_directory
    skip_unless_root
    Dir.mkdir(sockets, 0o700)
    File.chown(NOBODY, NOBODY, sockets)

    assert_refused("the directory for sockets #{sockets} belongs to uid #{NOBODY}; allowed: a directory of uid 0 " \
                   "with mode 0700")
  end

  def test_a_directory_that_cannot_be_made
    assert_refused("the directory for sockets /proc/memscope: No such file or directory; allowed: one that exists " \
                   "or can be created, set with MEMSCOPE_SOCKET_DIRECTORY",
                   "MEMSCOPE_SOCKET_DIRECTORY" => "/proc/memscope")
    long = "/#{'long/' * 20}memscope"

    assert_refused(/No such file or directory/, "MEMSCOPE_SOCKET_DIRECTORY" => long)
  end

  def test_a_directory_that_is_read_only
    skip_unless_root
    skip_unless_readable_for(NOBODY)
    FileUtils.chmod(0o711, @directory)
    FileUtils.touch(File.join(@directory, "err"))
    FileUtils.chmod(0o666, File.join(@directory, "err"))
    process = listening(uid: NOBODY)

    assert_includes File.read(File.join(@directory, "err")), "does not listen: the directory for sockets #{sockets}: " \
                                                             "Permission denied"
    assert_equal :silent, assert_raises(Memscope::Client::Unreachable) { client(process).call(:rss) }.why
  end

  def test_a_path_that_is_a_link_or_taken
    Dir.mkdir(sockets, 0o700)
    taken = File.join(sockets, "taken.sock")
    File.symlink("/etc/passwd", taken)

    assert_refused("the socket #{taken}: a link is there; allowed: a path that does not exist yet",
                   "MEMSCOPE_LISTEN" => taken)
    assert File.symlink?(taken)
    File.unlink(taken)
    first = listening(env: { "MEMSCOPE_LISTEN" => taken })

    assert_refused("the socket #{taken}: another process listens there; allowed: a path that does not exist yet",
                   "MEMSCOPE_LISTEN" => taken)
    assert_equal first.pid, client(first).call(:ledger).pid, "its environment tells where"
    assert_equal first.pid, client(first, path: taken).call(:ledger).pid
    Process.kill(:KILL, first.pid)
    Process.wait(first.pid)
    second = listening(env: { "MEMSCOPE_LISTEN" => taken })

    assert_equal second.pid, client(second).call(:ledger).pid, "what nobody listens on is replaced"
  end

  def test_paths_that_are_none
    process = start
    ["relative", "\0abstract", "@abstract", 7, "/utf-16".encode("UTF-16LE")].each do |path|
      given = path.is_a?(String) && !path.encoding.ascii_compatible? ? "'/utf-16'.encode('UTF-16LE')" : path.inspect
      process.tell("begin; Memscope.listen(path: #{given}); rescue ArgumentError => e; e.message; end")

      assert_equal "Memscope.listen: path: given #{path.inspect}, allowed: nil, an absolute path of at most 107 bytes"
        .inspect, process.gets
    end
    ["/#{'x' * 107}", "/x\0y"].each do |path|
      process.tell("begin; Memscope.listen(path: #{path.inspect}); rescue Memscope::Invalid => e; e.message; end")

      assert_includes process.gets, "allowed: nil, an absolute path of at most 107 bytes"
    end
  end

  { "a link" => ["is a link", ->(path, target) { File.symlink(Dir.mkdir(target, 0o700) && target, path) }],
    "a file" => ["is a file", ->(path, _target) { File.write(path, "") }],
    "open to others" => ["has mode 0777", ->(path, _target) { Dir.mkdir(path) && File.chmod(0o777, path) }],
    "readable by the group" => ["has mode 0750", ->(path, _target) { Dir.mkdir(path, 0o750) }] }
    .each do |what, (fault, make)|
    define_method("test_a_directory_that_is_#{what.tr(' ', '_')}") do
      make.call(sockets, File.join(@directory, "elsewhere"))

      assert_refused("the directory for sockets #{sockets} #{fault}; allowed: a directory of uid #{Process.euid} " \
                     "with mode 0700")
    end
  end
end
