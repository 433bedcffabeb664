# frozen_string_literal: true

require "test_helper"
require "tmpdir"

# Whether a process sees a file of this one.
class RemoteFileTest < MemscopeTest
  NATIVE = Memscope.const_get(:Native)

  def test_files_of_the_same_root
    Dir.mktmpdir do |directory|
      File.symlink(__FILE__, link = File.join(directory, "link"))

      assert NATIVE.sees?(Process.pid, File.realpath(__FILE__))
      refute NATIVE.sees?(Process.pid, link)
      refute NATIVE.sees?(Process.pid, File.join(directory, "none"))
    end
    refute NATIVE.sees?(0, "/")
  end

  # By such a link, the kernel would come to this process's own file.
  def test_links_of_another_root
    skip "only root can change it" unless Process.euid.zero?
    Dir.mktmpdir do |directory|
      File.symlink("/etc", File.join(directory, "etc"))
      in_root(directory) do |pid|
        assert File.identical?("/etc/passwd", "/proc/#{pid}/root/etc/passwd")
        refute NATIVE.sees?(pid, "/etc/passwd")
      end
    end
  end

  private

  def in_root(directory)
    reader, writer = IO.pipe
    pid = fork do
      Dir.chroot(directory)
      writer.puts
      sleep
    end
    reader.gets
    yield pid
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
    [reader, writer].each(&:close)
  end
end
