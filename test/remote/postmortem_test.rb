# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/black_boxes"

# What a black box tells about the end of a process. Boxes are planted as the extension reads them.
class PostmortemTest < MemscopeTest
  include BlackBoxes

  def test_all_that_a_box_can_have
    death = postmortem(body(**slots))

    assert_equal [4_194_000, "0.1.0", "4f2c"], [death.pid, death.memscope, death.identity.release]
    assert_equal 480 * MEBIBYTE, death.rss_bytes
    assert_equal death.ledger.rows.sum(&:bytes), death.ledger.rss_bytes
    assert_equal death, Memscope::Postmortem.from_json(death.to_json)
    assert_empty death.reasons
  end

  def test_what_was_not_recorded_has_a_reason
    death = postmortem

    assert_equal %i[lines heap census tags], death.reasons.keys
    assert_match(/not recorded: .*MEMSCOPE_OBJECTS_PROFILE=1/, death.reasons[:lines])
    assert_nil death.ledger
  end

  # The other slots are shown.
  def test_a_damaged_slot_has_a_reason
    huge = { at: 10**400, objects: nil, classes: [] }
    slots = { verdict: "[[", findings: { a: 1 }, lines: { at: NOW, malloc: 4 }, tags: "\xFF", threads: [1] }
    death = postmortem(body(**slots, census: huge))

    assert_match(/invalid: malloc: given 4/, death.reasons[:lines])
    damaged = %i[verdict findings tags census threads]

    assert_match(/slot of the black box is invalid/, death.reasons.values_at(*damaged).uniq.join("\n"))
    assert_empty damaged - death.reasons.keys
    assert_equal 480 * MEBIBYTE, death.rss_bytes
  end

  # A newer memscope may write more.
  def test_an_unknown_key_is_left_out
    assert_equal 7, postmortem(body(memory: { rss_bytes: 7, at: NOW, swap_bytes: 8 })).rss_bytes
  end

  def test_a_file_without_a_process_is_refused
    [body(identity: { pid: -1 }), body(seen: 2**62)].each do |given|
      assert_raises(Memscope::Invalid) { postmortem(given) }
    end
  end

  def test_a_last_word
    { { how: "exit", status: 3 } => [:exit, "Exited with status 3."],
      { how: "signal", signal: "TERM" } => [:signal, "Ended on SIGTERM, which it handled."] }.each do |ending, expected|
      death = postmortem(body(ending: { at: NOW, **ending }))

      assert_equal expected, [death.ended, death.ended_why]
      refute_predicate death, :violent?
    end
  end

  def test_a_process_that_runs
    own = { pid: Process.pid, started: CURRENT.started }

    assert_equal :running, postmortem(body(identity: own)).ended
    assert_equal :unknown, postmortem(body(identity: { **own, started: 1 })).ended
  end

  def test_the_count_of_oom_kills
    { 4 => :oom_kill, 3 => :killed, 2 => :unknown }.each do |now, ended|
      death = killed(now)

      assert_equal ended, death.ended, now
      assert_predicate death, :violent?
    end
    assert_match(/rose from 3 to 4, and no other process/, killed(4).ended_why)
  end

  def test_two_deaths_for_one_kill
    group = cgroup(4)
    bodies = [4_194_000, 4_194_001].map { |pid| body(pid: pid, identity: { directory: group }) }

    assert_equal :likely_oom_kill, postmortem(*bodies).ended
    File.write(File.join(group, "memory.events"), "oom_kill 5\n")

    assert_match(/rose from 3 to 5, which explains all 2 processes/, postmortem(*bodies).ended_why)
    assert_equal :oom_kill, postmortem(*bodies).ended
    said = { at: NOW, how: "exit", status: 0 }
    bodies[1] = body(pid: 4_194_001, identity: { directory: group }, ending: said)
    File.write(File.join(group, "memory.events"), "oom_kill 4\n")

    assert_equal :oom_kill, postmortem(*bodies).ended
  end

  # What a later process of the cgroup read soon after the end says more than the count of today.
  def test_a_later_box_of_the_cgroup
    group = cgroup(9)
    later = { pid: 4_194_001, identity: { directory: group, began_at: NOW - 50_000, oom_kills: 3 } }

    assert_equal :unknown, postmortem(body(identity: { directory: group, boot_id: "another" })).ended
    { 3 => :killed, 4 => :oom_kill }.each do |kills, ended|
      others = body(**later, limit: limit(oom_kills: kills), seen: NOW - 40_000)

      assert_equal ended, postmortem(body(identity: { directory: group }), others).ended
    end
  end

  # A successor that boots at once, and dies soon without a kill: the first death stays the only one of its time.
  def test_a_successor_that_saw_the_count
    group = cgroup(4)
    first = body(identity: { directory: group })
    successor = body(pid: 4_194_001, identity: { directory: group, began_at: NOW - 58_000, oom_kills: 4 },
                     limit: limit(oom_kills: 4), seen: NOW - 50_000)

    assert_equal :oom_kill, postmortem(first, successor).ended
    assert_equal :killed, postmortem(successor, first).ended
  end

  # A new container's cgroup may have the directory of the old one's.
  def test_another_cgroup_in_the_same_place
    group = cgroup(3)
    inode = File.stat(group).ino

    assert_equal :killed, postmortem(body(identity: { directory: group, cgroup_inode: inode })).ended
    assert_equal :unknown, postmortem(body(identity: { directory: group, cgroup_inode: inode + 1 })).ended
  end

  def test_near_the_limit_without_a_count
    approach = { at: NOW, why: "headroom", evidence: nil }

    assert_equal :likely_oom_kill, postmortem(body(approach: approach)).ended
    assert_equal :unknown, postmortem(body(approach: approach, limit: limit(headroom_bytes: 100 * MEBIBYTE))).ended
  end

  def test_growth_by_the_history
    death = postmortem(body(history: history, **slots))
    malloc = death.growth.first

    assert_equal :malloc, malloc.id
    assert_in_delta 120, malloc.life_bytes.fdiv(MEBIBYTE), 1
    assert_in_delta 40, malloc.hour_bytes.fdiv(MEBIBYTE), 1
    assert_in_delta (NOW / 1000) - (3 * 3600), death.growth_since.to_i, 150
  end

  # An hour before the end, of a growth of 40 MiB an hour.
  def test_growth_up_to_the_last_ledger
    at = Time.at((NOW / 1000) - 3600).utc.strftime("%FT%T.000Z")
    death = postmortem(body(history: history, ledger: { **slots[:ledger], at: at }))

    assert_in_delta 80, death.growth.first.life_bytes.fdiv(MEBIBYTE), 1
  end

  def test_a_line_for_a_log
    line = killed(4).sentence

    assert_match(/\Apuma worker 2 \(pid 4194000, release 4f2c\) was last seen at .* RSS of 480.0 MiB\. Killed by/, line)
    assert_equal 1, line.lines.size
  end

  private

  def killed(now) = postmortem(body(identity: { directory: cgroup(now) }))

  # Of a process that leaks in C, as the extension reads it.
  def history
    _verdict, read = Histories.leak(:native, 3, by: :plant)
    moved = NOW - 60_000 - at(read.points(:rss).last.at)
    curves = read.curves.map do |curve|
      rings = curve.rings.map { |ring| { **ring.to_h, at: at(ring.at) + moved } }
      { **curve.to_h.except(:spacing_seconds), rings: rings }
    end
    { started_at: at(read.started_at) + moved, curves: curves, events: [{ at: NOW, kind: 0 }, { at: NOW, kind: 99 }] }
  end

  def at(time) = (time.to_r * 1000).to_i
end
