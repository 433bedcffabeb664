# frozen_string_literal: true

require_relative "../test_helper"
require "minitest/mock"
require_relative "../support/black_boxes"
require_relative "../support/notified"

class BoxesTest < MemscopeTest
  include Notified
  include BlackBoxes

  Boxes = Memscope::Boxes
  RUNNING = { pid: Process.pid, started: CURRENT.started }.freeze

  def test_the_last_that_ended_is_the_last
    bodies = { "1-1.box" => body(pid: 11, identity: { boot_id: "a" }, seen: NOW),
               "2-1.box" => body(pid: 12, identity: { boot_id: "a" }, seen: NOW - 1000),
               "3-1.box" => body(identity: RUNNING), "4-1.box" => :denied, "5-1.box" => body(identity: { pid: nil }),
               "6-1.box.told" => body }
    planted(bodies) do |directory, source|
      assert_equal [12, 11], Boxes.read(directory, native: source).map(&:pid)
      named = Boxes.read(File.join(directory, "3-1.box"), native: source)

      assert_equal [:running], named.map(&:ended)
      error = assert_raises(Memscope::Unavailable) { Boxes.read(File.join(directory, "4-1.box"), native: source) }
      assert_match(/4-1.box: refused by the kernel/, error.message)
    end
  end

  def test_the_boxes_beside_a_file_are_evidence
    bodies = %w[1-1.box 2-1.box].to_h { |name| [name, body(pid: name.to_i, identity: { directory: group })] }

    planted(bodies) do |directory, source|
      assert_equal [:likely_oom_kill], Boxes.read(File.join(directory, "1-1.box"), native: source).map(&:ended)
    end
  end

  def test_the_newest_boxes_are_kept
    dead = (1..24).to_h { |n| ["#{n}-1.box", body(pid: n, identity: { boot_id: "a" }, seen: NOW - (n * 1000))] }
    told = { "24-1.box.told" => nil, "1-1.box.told" => nil }
    planted({ **dead, **told, "99-1.box" => body(identity: RUNNING, seen: 0), "x.box" => body }) do |directory, source|
      Boxes.sweep(directory, native: source)

      kept = [*(1..20).map { |n| "#{n}-1.box" }, "1-1.box.told", "99-1.box", "x.box"]

      assert_equal kept.sort, Dir.children(directory).sort
      Boxes.sweep(File.join(directory, "missing"), native: source)
    end
  end

  def test_a_status_is_noted_beside_its_box
    planted("1-1.box" => body, "2-1.box" => body(pid: 2)) do |directory, source|
      Boxes.stub(:directories, ["/missing", directory]) do
        { "1-1.box" => 11, "2-1.box" => 3 << 8, "3-1.box" => 9 }.each { |name, status| Boxes.note(name, status) }
        Boxes.note("1-1.box", 9)
      end
      endings = Boxes.read(directory, native: source).to_h { |death| [death.pid, [death.ended, death.ended_why]] }

      assert_equal :killed, endings[4_194_000].first
      assert_match(/\AEnded by SIGSEGV, as the kernel has recorded. A Ruby that crashes /, endings[4_194_000].last)
      assert_equal [:exit, "Exited with status 3 without a word, as exit! does."], endings[2]
      assert_equal 0o600, File.stat(File.join(directory, "1-1.box.ended")).mode & 0o777
      assert_equal %w[1-1.box 1-1.box.ended 2-1.box 2-1.box.ended], Dir.children(directory).sort
    end
  end

  # Whoever may have been killed for lack of memory counts, and no crash.
  def test_a_status_is_evidence_for_the_others_of_a_cgroup
    bodies = %w[1-1.box 2-1.box].to_h { |name| [name, body(pid: name.to_i, identity: { directory: group })] }
    planted(bodies) do |directory, source|
      Boxes.stub(:directories, [directory]) { { "1-1.box" => 9, "2-1.box" => 6 }.each { |one| Boxes.note(*one) } }

      assert_equal %i[oom_kill killed], Boxes.read(directory, native: source).sort_by(&:pid).map(&:ended)
    end
  end

  # The oldest by the time of the file. A process in another pid namespace holds the lock on its box.
  def test_boxes_of_another_memscope_do_not_stay_forever
    unread = :black_box_of_another_version
    dead = (1..24).to_h { |n| ["#{n}-1.box", n.odd? ? unread : body(pid: n, identity: { boot_id: "a" })] }
    own = "#{Process.pid}-#{CURRENT.started}.box"
    planted({ **dead, own => unread }) do |directory, source|
      dead.each_key { |name| File.utime(Time.at(0), Time.at(name.to_i), File.join(directory, name)) }
      File.open(File.join(directory, "1-1.box")) do |held|
        held.flock(File::LOCK_EX)
        Boxes.sweep(directory, native: source)
      end

      assert_equal [own, *dead.keys - %w[3-1.box 5-1.box 7-1.box]].sort, Dir.children(directory).sort
    end
  end

  def test_a_violent_end_is_told_once
    told = []
    logger = Struct.new(:lines) { define_method(:warn) { |line| lines << line } }.new([])
    bodies = { "1-1.box" => body(pid: 1, identity: { boot_id: "a" }), "2-1.box" => body(identity: RUNNING),
               "3-1.box" => body(identity: { boot_id: "a", service: "/srv/shop sidekiq" }),
               "4-1.box" => body(identity: { boot_id: "a" }, ending: { at: NOW, how: "exit", status: 1 }) }
    notified(:death, ->(_name, _from, _to, _id, payload) { told << payload[:postmortem].pid }) do
      planted(bodies) do |directory, source|
        Memscope::Configuration.stub(:effective, logger) do
          2.times { Boxes.tell(directory, "/srv/shop puma worker", native: source) }
        end

        assert_equal %w[1-1.box.told], Dir.children(directory) - bodies.keys
      end
    end

    assert_match(/\Amemscope: puma worker 2 \(pid 1, release 4f2c\) was last seen at .*\z/, logger.lines.join("\n"))
    assert_equal [1], told
  end

  def test_without_a_logger_standard_error_has_the_line
    planted({ "1-1.box" => body(pid: 1, identity: { boot_id: "a" }) }) do |directory, source|
      service = "/srv/shop puma worker"

      assert_output("", /\Amemscope: puma worker 2 /) { Boxes.tell(directory, service, native: source) }
      assert_silent { Boxes.tell(directory, service, native: source) }
      assert_silent { Boxes.tell("/nonexistent", service, native: source) }
    end
  end

  # Its subscribers raise.
  def test_the_application_cannot_hurt
    notified(:death, ->(*) { raise "no" }) do
      planted({ "1-1.box" => body(pid: 1, identity: { boot_id: "a" }) }) do |directory, source|
        assert_output("", /memscope/) { Boxes.tell(directory, "/srv/shop puma worker", native: source) }
      end
    end
  end

  # A process in another container looks gone.
  def test_a_process_of_another_namespace_runs_while_it_locks_its_box
    other = { pid_namespace: 1, boot_id: CURRENT.boot_id }
    planted({ "1-1.box" => body(identity: other) }) do |directory, source|
      path = File.join(directory, "1-1.box")
      File.open(path) do |file|
        file.flock(File::LOCK_EX)

        assert_equal [:running], Boxes.read(path, native: source).map(&:ended)
      end
      assert_equal [:unknown], Boxes.read(path, native: source).map(&:ended)
    end
  end

  def test_refused_arguments
    [:x, "a\0b", 1.5].each { |given| assert_raises(Memscope::Invalid) { Memscope.postmortem(given) } }
    assert_raises(Memscope::Unavailable) { Boxes.read("/nonexistent/x.box", native: Source.new({})) }
  end

  private

  def group = @group ||= cgroup(4)
end
