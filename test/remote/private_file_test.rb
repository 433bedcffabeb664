# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/remote/private_file"
require "tmpdir"

class PrivateFileTest < MemscopeTest
  NEW = File::WRONLY | File::CREAT

  def setup = @directory = Dir.mktmpdir
  def teardown = FileUtils.remove_entry(@directory)

  def path(name = "file") = File.join(@directory, name)
  def open_file(flags = NEW, name: "file") = Memscope::PrivateFile.open(path(name), flags).close

  def test_a_file_is_made_that_only_its_user_can_read
    kept = File.umask(0)
    Memscope::PrivateFile.open(path, NEW).tap { |file| file.write("x") }.close

    assert_equal [0o100600, "x"], [File.stat(path).mode, File.read(path)]
    open_file
  ensure
    File.umask(kept)
  end

  def test_an_existing_file_is_refused_with_excl
    open_file

    assert_raises(Errno::EEXIST) { open_file(NEW | File::EXCL) }
  end

  def test_a_link_is_not_followed
    open_file(name: "elsewhere")
    File.symlink(path("elsewhere"), path)

    assert_raises(Errno::ELOOP) { open_file }
  end

  def test_a_file_that_others_can_read
    open_file
    File.chmod(0o640, path)

    assert_refused
  end

  def test_another_users_file
    skip "only root can give a file away" unless Process.uid.zero?
    open_file
    File.chown(65_534, nil, path)

    assert_refused
  end

  # Opening a pipe for writing waits for a reader.
  def test_a_pipe_does_not_block
    File.mkfifo(path, 0o600)

    assert_raises(Errno::ENXIO) { open_file }
    assert_raises(Memscope::Sockets::Refused) { open_file(File::RDONLY) }
  end

  def test_a_refused_file_is_closed
    File.write(path, "", perm: 0o644)
    before = Dir.children("/proc/self/fd").size

    assert_refused

    assert_equal before, Dir.children("/proc/self/fd").size
  end

  private

  def assert_refused
    error = assert_raises(Memscope::Sockets::Refused) { open_file }
    assert_equal "#{path}: allowed: a file of uid #{Process.euid} with mode 0600", error.message
  end
end
