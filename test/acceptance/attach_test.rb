# frozen_string_literal: true

require "test_helper"
require_relative "../support/bystander"
require_relative "../support/command_line"

# A process that has never loaded memscope, asked from outside by the command line.
class AttachTest < MemscopeTest
  include Bystander
  include CommandLine

  PROGRAM = <<~RUBY
    class Order; def initialize(number) = @text = "order \#{number}" * 100; end
    holder = Thread.new { kept = Array.new(5_000) { |number| Order.new(number) }; sleep; p kept.size }
    2.times { Thread.new { loop { Array.new(100) { "a" * 50 } } } } if ARGV.first == "busy"
    sleep 0.01 until holder.stop?
    GC.start
    puts
    $stdout.flush
    sleep
  RUBY

  both_allocators "the retainer of objects on another thread's stack", in_full: [:jemalloc] do |preload|
    %w[idle busy].each do |state|
      running(state, preload: preload) do |pid|
        text = ask("heap", "--pid", pid, "--paths-to", "Order")

        assert_match(/paths to Order \(5,000 objects\)/, text)
        assert_match(/Thread at -e:2 → Array → Order/, text)
        assert_match(/^  taken from outside: paused [\d.]+ m?s, child [\d.]+ m?s; memscope was not loaded$/, text)
      end
    end
  end

  # Its extension is another one than the copy's, with symbols of the same names, which Ruby makes global.
  def test_a_process_that_has_loaded_memscope_but_does_not_listen
    running("idle", options: ["-I#{ChildProcess::ROOT}/lib", "-rmemscope"]) do |pid|
      ledger = Memscope::Ledger.from_json(ask("report", "--pid", pid, "--json"))

      assert_equal File.read("/proc/#{pid}/status")[/^VmRSS:\s*(\d+)/, 1].to_i * 1024, ledger.rss_bytes
      assert_match(/; memscope was loaded, but did not listen$/, ask("doctor", "--pid", pid, "--gc", exits: 0..2))
    end
  end

  # The rows are those of the process itself, whose pages the copy shares.
  both_allocators "the ledger of an idle process is the kernel's RSS, to the byte" do |preload|
    running("idle", preload: preload) do |pid|
      ledger = Memscope::Ledger.from_json(ask("report", "--pid", pid, "--json"))
      rss = File.read("/proc/#{pid}/status")[/^VmRSS:\s*(\d+)/, 1].to_i * 1024

      assert_equal rss, ledger.rss_bytes
      assert_equal rss, ledger.rows.sum(&:bytes)
      assert_equal pid, ledger.pid
      assert_operator ledger[:malloc].bytes, :>, 5_000 * 700
    end
  end

  def test_other_questions_and_nothing_left_behind
    running("idle") do |pid|
      before = traces(pid)
      census = Memscope::Census.from_json(ask("census", "--pid", pid, "--json"))
      doctor = Memscope::Diagnosis.from_json(ask("doctor", "--pid", pid, "--json"))
      Dir.mktmpdir do |directory|
        dump = File.join(directory, "heap.json")
        ask("dump", "--pid", pid, "--output", dump)

        assert_equal 5_000, Memscope::HeapGraph.read(dump, paths_to: "Order").target_count
      end

      assert_equal 5_000, census.by(:class).find { |row| row.name == "Order" }.count
      assert_equal pid, doctor.pid
      assert_equal before, traces(pid)
    end
  end

  # Both figures of the footer, against this process's clock.
  def test_the_pause_is_a_part_of_the_copy_s_life_and_that_of_the_command
    require "memscope/remote/copy"
    running("idle") do |pid|
      began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      copy = Memscope::Copy.new(pid)
      pause_ms = copy.call(:census).cost.gvl_us / 1000.0
      figures = copy.close
      took_ms = (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began) * 1000

      assert_operator 0.0, :<, pause_ms
      assert_operator pause_ms, :<=, figures["copy_ms"].to_i + 1
      assert_operator figures["copy_ms"].to_i, :<=, took_ms
      assert_operator figures["fork_ns"].to_i, :<=, figures["pause_ns"].to_i
    end
  end

  def test_no_attach_leaves_it_alone
    running("idle") do |pid|
      assert_match(/the kernel's view only/, ask("report", "--pid", pid, "--no-attach", output: :err))
    end
  end

  private

  def running(state, preload: nil, options: [], &block)
    super(RbConfig.ruby, "-W0", *options, "-e", PROGRAM, state, env: { "LD_PRELOAD" => preload }, &block)
  end

  # In this process, which starts faster than another one. The asked process rests after a long pause.
  def ask(*arguments, output: :out, exits: [0])
    ran = nil
    loop do
      ran = run_memscope(*arguments.map(&:to_s))
      break unless ran.err.include?("was copied a moment ago")

      sleep 0.1
    end

    assert_includes exits, ran.status, ran.err
    ran[output]
  end

  # Threads, descriptors, children, mappings, and who traces it.
  def traces(pid)
    [Dir.children("/proc/#{pid}/task").sort, Dir.children("/proc/#{pid}/fd").sort,
     File.read("/proc/#{pid}/task/#{pid}/children"), File.read("/proc/#{pid}/maps"),
     File.read("/proc/#{pid}/status")[/^TracerPid:.*$/], File.read("/proc/#{pid}/status")[/^SigBlk:.*$/]]
  end
end
