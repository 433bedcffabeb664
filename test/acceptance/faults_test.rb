# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/puma_server"
require "memscope/cli/cli"
require "stringio"

# The three memory problems that people look for, in a worker of a Puma cluster, as the commands report them: each is a
# finding with a number, the right layer and the next command; a healthy worker has no problems.
#
# `rake battery:faults` also waits until the workers know how fast they grow.
class FaultsTest < MemscopeTest
  parallelize_me!

  MEBIBYTE = 1_048_576
  MINUTES = ENV.fetch("MEMSCOPE_FAULT_MINUTES", nil)

  def with_server
    skip_under_sanitizer
    PumaServer.run("workers 2; preload_app!", env: { "WITHOUT_GC" => "1" }) do |server|
      server.workers_when("two workers") { |all| all.count { |worker| worker.role == :worker && worker.at } == 2 }
      @server = server
      yield
    end
  end

  # Requests a page until one worker has answered it `times` times.
  #
  # @return [Integer] its pid
  def visit(path, times = 1, pid: nil)
    answered = 0
    @server.until_found("answers of a worker") do
      found = Integer(@server.get(path))
      pid ||= found
      answered += 1 if found == pid
      answered == times
    end
    pid
  end

  def command(name, pid, *arguments)
    out = StringIO.new
    err = StringIO.new
    status = Memscope::CLI.run([name, "--socket", File.join(@server.directory, "#{pid}.sock"), *arguments],
                               out: out, err: err)

    assert_includes [0, 1], status, err.string
    out.string
  end

  def diagnose(pid, *arguments) = Memscope::Diagnosis.from_json(command("doctor", pid, "--json", *arguments))

  def finding(diagnosis, id) = diagnosis.find { |found| found.id == id } || flunk("no #{id}:\n#{diagnosis}")

  def assert_next(pid, command, found) = assert_includes(found.remedy, "memscope #{command} --pid #{pid}")

  # Writes a first diagnosis, runs the block, and judges what has grown since.
  def growth(pid)
    path = File.join(@server.directory, "first.json")
    command("doctor", pid, "--gc", "--json", "--output", path)
    yield
    diagnose(pid, "--gc", "--since", path)
  end

  only_in_full def test_a_healthy_worker
    with_server do
      pid = visit("/pid", 20)

      assert_match(/^  No problems found\. RSS [\d.]+ MiB\.$/, command("doctor", pid))
      assert_predicate diagnose(pid), :healthy?
    end
  end

  def test_a_cache_that_only_grows
    with_server do
      pid = visit("/hoard", 2)
      diagnosis = growth(pid) { visit("/hoard", 30, pid: pid) }
      found = finding(diagnosis, :object_growth)

      assert_equal :warning, found.severity, diagnosis.to_s
      assert_operator found.affected_bytes, :>, 20 * MEBIBYTE
      assert_next pid, "heap", found
      assert_empty diagnosis.select { |other| other.id == :native_growth }, diagnosis.to_s
      assert_grows pid, "/hoard"
    end
  end

  # In bin/check, test/acceptance/doctor_test.rb has such leaks in a program of its own.
  only_in_full def test_a_leak_of_an_extension
    with_server do
      pid = visit("/lint")
      diagnosis = growth(pid) { visit("/lint", 3, pid: pid) }
      found = finding(diagnosis, :native_growth)

      assert_equal :warning, found.severity, diagnosis.to_s
      assert_operator found.affected_bytes, :>, 10 * MEBIBYTE
      assert_next pid, "profile", found
      refute_match(/prof:true|--profile/, diagnosis.to_s)
      assert_empty diagnosis.select { |other| other.id == :object_growth }, diagnosis.to_s
    end
  end

  # Before a collection: the doctor says how much is garbage and what goes back, as a dry run does.
  def test_a_peak_that_is_garbage
    with_server do
      pid = visit("/peak")
      before = diagnose(pid)
      found = finding(before, :possible_garbage)
      dry = Memscope::Purge::Result.from_h(JSON.parse(command("purge", pid, "--dry-run", "--json", "gc", "trim")))
      purged = Memscope::Purge::Result.from_h(JSON.parse(command("purge", pid, "--json", "gc", "trim")))

      refute_match(/no problems found/i, before.to_s)
      refute_predicate before, :healthy?
      assert_equal :warning, found.severity, before.to_s
      assert_match(/\A[\d.]+ MiB is garbage that Ruby has not collected/, found.title)
      assert_equal "memscope purge --pid #{pid} gc trim", found.remedy
      [found.recoverable_bytes, found.recoverable_max_bytes].each do |bound|
        assert_in_delta purged.returned_private_bytes, bound, purged.returned_private_bytes / 5, before.to_s
      end
      refute_match(/may be garbage/, before.to_s)
      dry.predicted.minmax.each do |bound|
        assert_in_delta purged.returned_bytes, bound, purged.returned_bytes / 10, dry.to_s
      end
      assert_operator purged.returned_bytes, :>, 100 * MEBIBYTE
      assert_operator purged.returned_bytes, :<=, found.recoverable_max_bytes + (found.affected_bytes / 10)
      refute_includes diagnose(pid, "--gc").map(&:id), :possible_garbage
    end
  end

  # The growth that the worker itself has measured, once it has done so for some minutes.
  def assert_grows(pid, path)
    return unless MINUTES

    ending = Time.now + (60 * Float(MINUTES))
    visit(path, pid: pid) && sleep(1) while Time.now < ending
    found = finding(diagnose(pid), :growth)

    assert_equal :warning, found.severity
    assert_match(/RSS grows by [\d,.]+ MiB.h/, found.title)
    assert_match(/malloc \(glibc\) [\d,.]+ MiB.h/, found.explanation)
    assert_next pid, "profile", found
  end
end
