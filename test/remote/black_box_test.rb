# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"

class BlackBoxTest < MemscopeTest
  parallelize_me!

  NATIVE = Memscope.const_get(:Native)

  # Records in `directory`, and does what follows.
  PRELUDE = <<~RUBY
    Memscope.configure { |c| c.black_box = ENV.fetch('BOXES') }
    Memscope::Workers.watch
    def recorded = Memscope::BlackBox.status&.fetch(:written_at, nil)
    sleep 0.01 until recorded
  RUBY

  def in_directory
    Dir.mktmpdir { |directory| yield File.join(directory, "boxes") }
  end

  # Runs a program that may die. Returns its boxes, taken apart.
  def boxes_of(directory, script, preload: nil)
    ChildProcess.run("#{PRELUDE}#{script}", env: { "BOXES" => directory }, requires: %w[json memscope],
                                            preload: preload)
    Dir.glob("#{directory}/*.box").to_h { |path| [path, NATIVE.read_black_box(path)] }
  end

  def slot(box, name) = box[:slots][name]&.then { |slot| JSON.parse(slot[:text], symbolize_names: true) }

  both_allocators("a_killed_process_leaves_its_box") do |preload|
    in_directory do |directory|
      path, box = boxes_of(directory, <<~RUBY, preload: preload).first
        Thread.current.name = "worker"
        Memscope::BlackBox::Runs.during("ImportJob") do
          sleep 0.05 until Memscope.const_get(:Runtime).current.ledger
          Memscope.const_get(:Runtime).current.black_box.send(:record, Float::INFINITY)
          Process.kill(:KILL, Process.pid)
        end
      RUBY
      identity = slot(box, :identity)
      ledger = Memscope::Ledger.from_h(slot(box, :ledger))

      assert_equal "#{identity[:pid]}-#{identity[:started]}.box", File.basename(path)
      assert_equal 0o600, File.stat(path).mode & 0o7777
      assert_equal %w[ImportJob worker], slot(box, :tags)[:runs].first.values_at(:tag, :thread)
      assert_equal ledger.rss_bytes, ledger.rows.sum(&:bytes)
      assert_in_delta ledger.rss_bytes, slot(box, :memory)[:rss_bytes], 8 << 20
      assert_equal :too_early, Memscope::Verdict.from_h(slot(box, :verdict)).kind
      assert_includes box[:history][:curves].map { |curve| curve[:id] }, :rss
      assert_nil slot(box, :ending)
    end
  end

  # Not only a minute later.
  def test_the_lines_of_a_profile_that_has_just_begun
    in_directory do |directory|
      box = boxes_of(directory, <<~RUBY).values.first
        native = Memscope.const_get(:Native)
        sleep 0.01 until native.read_black_box(Memscope::BlackBox.status[:path])[:slots][:threads]
        Memscope::ObjectProfile.start
        held = Array.new(50_000) { "x" * 200 }
        Memscope.const_get(:Runtime).current.black_box.send(:record_seldom, 0.0, nil)
        Process.kill(:KILL, Process.pid)
      RUBY

      assert_match(/-e:\d+/, slot(box, :lines)[:objects].first[:line])
    end
  end

  def test_a_process_that_exits_deletes_its_box
    in_directory do |directory|
      assert_empty boxes_of(directory, "exit")
      assert_empty boxes_of(directory, "raise 'an error'")
      assert_empty boxes_of(directory, "Process.kill(:TERM, Process.pid); sleep")
    end
  end

  def test_a_process_that_leaked_leaves_its_box_when_it_exits
    in_directory do |directory|
      box = boxes_of(directory, <<~RUBY).values.first
        Memscope.const_get(:Runtime).current.verdict = Struct.new(:leak?).new(true)
        Process.kill(:TERM, Process.pid)
        sleep
      RUBY

      assert_equal %w[signal TERM], slot(box, :ending).values_at(:how, :signal)
    end
  end

  # The child closes the descriptor of its parent's box, and leaves that box alone when it exits.
  def test_a_forked_child_has_a_box_of_its_own
    in_directory do |directory|
      boxes = boxes_of(directory, <<~RUBY)
        own = Memscope::BlackBox.status[:path]
        child = fork do
          exit!(1) if Memscope::BlackBox.status&.key?(:path)
          exit!(2) if Dir.glob("/proc/self/fd/*").any? { |fd| File.symlink?(fd) && File.readlink(fd) == own }
          Memscope::BlackBox.start(role: "puma worker", index: 3)
          sleep 0.01 until recorded
          exit!(0)
        end
        exit!(Process.wait2(child).last.exitstatus)
      RUBY
      roles = boxes.each_value.map { |box| slot(box, :identity)[:role] }

      assert_equal ["process", "puma worker 3"], roles.sort
    end
  end

  def test_a_directory_in_memory_is_left_for_one_on_a_disk
    skip "no tmpfs at /dev/shm" unless File.writable?("/dev/shm")
    Dir.mktmpdir(nil, "/dev/shm") do |memory|
      status = child_json(<<~RUBY, env: { "BOXES" => memory }, requires: %w[json memscope])
        Memscope.configure { |c| c.socket_directory = "\#{ENV.fetch('BOXES')}/sockets" }
        Memscope::Workers.watch
        sleep 0.01 until Memscope::BlackBox.status&.fetch(:written_at, nil)
        puts JSON.generate(Memscope::BlackBox.status)
      RUBY

      refute status["in_memory"]
      refute_operator status["path"], :start_with?, memory
    end
  end

  def test_a_refused_directory_is_a_reason
    Dir.mktmpdir do |directory|
      File.chmod(0o755, directory)
      status = child_json(<<~RUBY, env: { "BOXES" => directory }, requires: %w[json memscope])
        Memscope.configure { |c| c.black_box = ENV.fetch('BOXES') }
        Memscope::Workers.watch
        sleep 0.01 until Memscope::BlackBox.status
        puts JSON.generate(Memscope::BlackBox.status)
      RUBY

      assert_match(/#{Regexp.escape(directory)}.*0755/, status["reason"])
    end
  end

  def test_no_box_if_the_setting_is_false
    in_directory do |directory|
      assert_equal [nil], child_json(<<~RUBY, env: { "BOXES" => directory }, requires: %w[json memscope])
        Memscope.configure { |c| c.black_box = false }
        Memscope::Workers.watch
        sleep 0.3
        puts JSON.generate([Memscope::BlackBox.status])
      RUBY
    end
  end

  def test_texts_without_room_lose_the_second_half_of_their_longest_list
    in_directory do |directory|
      box = boxes_of(directory, <<~RUBY).values.first
        box = Memscope.const_get(:Runtime).current.black_box
        box.send(:write, :memory, { names: Array.new(500) { |number| "name \#{number}" }, short: [1] })
        Process.kill(:KILL, Process.pid)
      RUBY
      memory = slot(box, :memory)

      assert_includes 30..125, memory[:names].size
      assert_equal [1], memory[:short]
    end
  end

  def test_slots_that_do_not_exist_and_other_files
    in_directory do |directory|
      Dir.mkdir(directory, 0o700)

      assert_equal :not_found, NATIVE.read_black_box("#{directory}/none.box")
      File.write("#{directory}/other.box", "text", perm: 0o600)

      assert_equal :malformed, NATIVE.read_black_box("#{directory}/other.box")
      File.write("#{directory}/old.box", ["memscope box", 1].pack("a64Q"), perm: 0o600)

      assert_equal :black_box_of_another_version, NATIVE.read_black_box("#{directory}/old.box")
      File.chmod(0o640, "#{directory}/other.box")

      assert_equal :black_box_not_private, NATIVE.read_black_box("#{directory}/other.box")
      File.symlink("#{directory}/other.box", "#{directory}/link.box")

      assert_equal :io, NATIVE.read_black_box("#{directory}/link.box")
    end
  end
end
