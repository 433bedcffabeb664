# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/remote/attachment"
require_relative "../support/bystander"

# What can keep a process from listening. test/cli/attach_command_test.rb has what does not.
class AttachmentTest < MemscopeTest
  include Bystander

  Attachment = Memscope.const_get(:Attachment)
  Failed = Memscope::Client::Failed

  def test_a_process_that_cannot_load_memscope
    running("module Kernel; def require(name) = raise(LoadError); end") do |pid|
      error = assert_raises(Failed) { Attachment.new(pid).open }

      assert_match(/\Aprocess #{pid} could not load memscope: LoadError, of which its standard error/, error.message)
      assert_includes File.read("/proc/#{pid}/status"), "TracerPid:\t0\n"
    end
  end

  # As where the file system can only be read.
  def test_a_process_without_a_directory_for_its_socket
    running("ENV['MEMSCOPE_SOCKET_DIRECTORY'] = '/dev/null/none'") do |pid|
      error = assert_raises(Failed) { Attachment.new(pid).open }

      assert_match(/\Aprocess #{pid} has loaded memscope, but has no directory for its socket: /, error.message)
    end
  end

  def test_a_process_that_does_not_see_its_files
    skip "needs root and mount namespaces" unless system("unshare", "--mount", "true", err: File::NULL)

    library = File.join(ChildProcess::ROOT, "lib")
    hide = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none '#{library}' && exec \"$@\"", "sh"]
    running("", before: hide) do |pid|
      error = assert_raises(Failed) { Attachment.new(pid).open }

      assert_match(/\Aprocess #{pid} does not see #{library}, as in a container/, error.message)
    end
  end

  private

  def running(program, before: [], &block)
    program = "#{program}\nputs; $stdout.flush; sleep"
    super(*before, RbConfig.ruby, "-W0", "-e", program, &block)
  end
end
