# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"

# A process whose black box cannot be written goes on, knows why, and leaves what was in the box before. Root has a file
# system of its own fail for it: in a mount namespace of the test's own, on a loop device that goes away with it.
class FailingDisksTest < MemscopeTest
  parallelize_me!

  PRELUDE = <<~RUBY
    Memscope.configure { |c| c.black_box = ENV.fetch("BOXES") }
    Memscope::Workers.watch
    sleep 0.005 until Memscope::BlackBox.status&.values_at(:written_at, :reason)&.any?
    NATIVE = Memscope.const_get(:Native)
    BOX = Memscope.const_get(:Runtime).current.black_box

    def path = Memscope::BlackBox.status[:path]
    def run(*command) = system(*command, exception: true)
    def reason = Memscope::BlackBox.status[:reason]

    # In all parts of the box, in both places of each.
    def record = 2.times { BOX.send(:record, Float::INFINITY) }

    # Why the last record is not in the box, and whether this process's box is there.
    def answer(why = reason, box = path, **more)
      read = box && NATIVE.read_black_box(box)
      pid = JSON.parse(read[:slots][:identity][:text])["pid"] if read.is_a?(Hash)
      $stdout.syswrite(JSON.generate({ reason: why, readable: pid == Process.pid, **more }))
      exit!(0)
    end
  RUBY

  # Counts how often this thread runs while another one waits for a write.
  STALLED = <<~RUBY
    holder = IO.popen(["sh", "-c", 'fsfreeze -f "$BOXES" && echo frozen; sleep 1; fsfreeze -u "$BOXES"'])
    exit!(1) unless holder.gets == "frozen\\n"
    writer = Thread.new { record }
    turns = 0
    reasons = []
    while writer.alive?
      turns += 1
      reasons << reason
      sleep 0.005
    end
    holder.close
    answer(turns: turns, while_frozen: reasons.compact.last)
  RUBY

  def answer(script, mounts = nil)
    Dir.mktmpdir do |directory|
      boxes = File.join(directory, "boxes")
      Dir.mkdir(boxes, 0o700)
      command = [*ChildProcess.ruby, "-rjson", "-rmemscope", "-e", "#{PRELUDE}#{script}"]
      command = ["unshare", "--mount", "sh", "-e", "-c", "#{mounts}\nexec \"$0\" \"$@\"", *command] if mounts
      environment = { "BOXES" => boxes, "IMAGE" => File.join(directory, "image") }
      ChildProcess.run_command(*command, env: environment, chdir: directory).json
    end
  end

  def assert_explained(reason, found)
    assert_match reason, found["reason"].to_s
    assert found["readable"], "the box cannot be read: #{found}"
  end

  def skip_without_mounts(*programs)
    skip "only root can mount" unless Process.uid.zero?
    missing = ["unshare", *programs].find { |program| !system("command -v #{program} >/dev/null") }
    skip "there is no #{missing}" if missing
    skip "mounts are not allowed" unless system("unshare --mount mount -t tmpfs none /mnt", err: File::NULL)
  end

  # A file system of 8 MiB, on a device that is freed when nothing uses it.
  EXT4 = <<~SHELL
    truncate -s 8M "$IMAGE" && mkfs.ext4 -q -F -E root_owner=0:0 "$IMAGE"
    DEVICE=$(losetup --find --show "$IMAGE")
    export DEVICE
    trap 'losetup -d $DEVICE' EXIT
    mount -o errors=remount-ro "$DEVICE" "$BOXES"
    losetup -d "$DEVICE"
    trap - EXIT
    chmod 700 "$BOXES"
  SHELL

  def on_ext4(script)
    skip_without_mounts "mkfs.ext4", "losetup", "fsfreeze"
    skip "no loop device" unless File.exist?("/dev/loop-control")
    answer(script, EXT4)
  end

  # Only a process that has the file open can still read it.
  def test_a_directory_that_is_removed
    found = answer(<<~RUBY)
      require "fileutils"
      FileUtils.remove_entry(ENV.fetch("BOXES"))
      record
      answer
    RUBY

    assert_match(/another process has deleted or truncated it/, found["reason"])
  end

  def test_a_box_that_is_truncated
    assert_explained(/another process has deleted or truncated it/, answer(<<~RUBY))
      File.truncate(path, 100_000)
      record
      answer
    RUBY
  end

  only_in_full def test_a_file_system_in_memory_that_is_full
    skip_without_mounts
    script = <<~RUBY
      File.open("\#{ENV["BOXES"]}/other", "w") { |file| loop { file.syswrite("x" * 4096) } } rescue Errno::ENOSPC
      record
      answer
    RUBY
    assert_explained(/No space left on device/, answer(script, "mount -t tmpfs -o size=128k,mode=700 none \"$BOXES\""))
  end

  # The room for the box is reserved.
  only_in_full def test_a_disk_that_is_full
    assert_explained(/\A\z/, on_ext4(<<~RUBY))
      File.open("\#{ENV["BOXES"]}/other", "w") { |file| loop { file.syswrite("x" * 4096) } } rescue Errno::ENOSPC
      record
      answer
    RUBY
  end

  only_in_full def test_a_directory_that_is_read_only
    skip_without_mounts
    found = answer("answer", "mount --bind \"$BOXES\" \"$BOXES\"\nmount -o remount,bind,ro \"$BOXES\"")

    assert_match(/Read-only file system/, found["reason"])
  end

  # The kernel does so after an error of the disk.
  only_in_full def test_a_disk_that_becomes_read_only
    assert_explained(/Read-only file system/, on_ext4(<<~RUBY))
      trigger = "/sys/fs/ext4/\#{File.basename(ENV.fetch("DEVICE"))}/trigger_fs_error"
      File.write(trigger, "test of memscope")
      record
      answer
    RUBY
  end

  # After the ioctl FS_IOC_SHUTDOWN (0x8004587d), without a flush of the log, all that a file system is asked for fails.
  only_in_full def test_a_disk_that_answers_with_errors
    assert_explained(%r{Input/output error}, on_ext4(<<~RUBY))
      box = path
      run("sync")
      File.open(ENV["BOXES"]) { |directory| directory.ioctl(0x8004587d, [2].pack("I")) }
      record
      why = reason
      NATIVE.close_black_box
      run("umount", ENV["BOXES"])
      run("mount", ENV["IMAGE"], ENV["BOXES"])
      answer(why, box)
    RUBY
  end

  only_in_full def test_a_disk_that_stalls
    found = on_ext4(STALLED)

    assert_explained(/\A\z/, found)
    assert_match(/a write has not ended for \d+ s/, found["while_frozen"])
    assert_operator found["turns"], :>, 20
  end
end
