# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/allocator_fixtures"
require_relative "../support/ledger_tree"

# If the kernel or the allocator refuses something, every reading reports what it can, and gives reasons for the rest.
class DegradedTest < MemscopeTest
  parallelize_me!

  NOBODY = 65_534

  # `readings` prints every reading; none of them may raise. All files are loaded while they can still be seen.
  READINGS = <<~RUBY
    require "json"
    require "stringio"
    require "memscope/show/report"
    require "memscope_test"

    def readings
      names = %i[ledger allocator process_memory cgroup ruby_heap snapshot]
      answers = names.to_h { |name| [name, JSON.parse(Memscope.public_send(name).to_json)] }
      statm = File.read("/proc/self/statm").split[1].to_i * 4096 if File.exist?("/proc/self/statm")
      report = StringIO.new
      Memscope.report(report)
      puts JSON.generate(answers.merge(rss: Memscope.rss, statm: statm, report: report.string))
    end
  RUBY

  both_allocators "no PAGEMAP_SCAN" do |preload|
    answer = read("Host.deny_pagemap_scan!", preload: preload)

    # A sanitizer's terabytes of shadow memory are too much for pagemap.
    assert_equal(ChildProcess::SANITIZER ? "smaps" : "pagemap", answer["ledger"]["source"])
    assert_match(/PAGEMAP_SCAN|pagemap/, answer["ledger"]["reasons"]["source"])
    assert_closed(answer)
  end

  # Both make the reader of pagemap list the mappings again.
  { "a large reservation" => "Host.reserve(5 << 30)", "zero pages" => "Host.read_zero_pages(8 << 20)" }
    .each do |name, mapping|
    both_allocators "no PAGEMAP_SCAN beside #{name}" do |preload|
      skip_under_sanitizer
      answer = read("Host.deny_pagemap_scan!; #{mapping}", preload: preload)
      malloc = LedgerTree.new(answer["ledger"]).rows.fetch("malloc")

      assert_closed(answer)
      assert_equal("pagemap", answer["ledger"]["source"])
      assert_operator(malloc["bytes"], :>=, 1024 * 1024)
      assert_operator(LedgerTree.new(answer["ledger"]).bytes("unattributed"), :<=, 512 * 1024)
      assert_equal(*malloc["check"].values_at("expected_bytes", "actual_bytes")) if preload
    end
  end

  both_allocators "no process_vm_readv" do |preload|
    assert_closed(read("Host.forbid_process_vm_readv!", preload: preload))
  end

  both_allocators "neither" do |preload|
    assert_closed(read("Host.deny_pagemap_scan!; Host.forbid_process_vm_readv!", preload: preload))
  end

  # A process that dropped root without an exec may no longer read its own pagemap.
  both_allocators "not dumpable" do |preload|
    skip "only root can become someone else" unless Process.uid.zero?
    answer = read("Process::Sys.setuid(#{NOBODY})", preload: preload)

    assert_equal("smaps", answer["ledger"]["source"])
    refute_empty(answer["ledger"]["reasons"])
    assert_closed(answer)
  end

  both_allocators "no /proc" do |preload|
    skip "only root can change its root directory" unless Process.uid.zero?
    Dir.mktmpdir do |empty|
      answer = read("Dir.chroot(#{empty.dump}); Dir.chdir('/')", preload: preload)
      ledger = answer["ledger"]

      assert_equal(["none", nil, []], ledger.values_at("source", "rss_bytes", "rows"))
      assert_nil(answer["rss"])
      %w[ledger process_memory cgroup snapshot].each { |name| refute_empty(answer[name]["reasons"], name) }
      refute_empty(answer["report"])
    end
  end

  # People examine a process that has leaked all of its descriptors.
  both_allocators "no descriptor is left" do |preload|
    failed = child_json(<<~RUBY, preload: preload)
      Memscope.eager_load!
      readings = %i[ledger mappings allocator process_memory cgroup ruby_heap snapshot arenas size_classes fragmentation
                    census heap_graph tags workers history verdict lint doctor]
      Process.setrlimit(:NOFILE, 64)
      held = []
      begin
        loop { held << IO.pipe }
      rescue Errno::EMFILE
        held << (IO.sysopen(File::NULL) rescue nil)
      end
      failed = readings.filter_map do |name|
        Memscope.public_send(name).to_s
        nil
      rescue StandardError, ScriptError => e
        [name, e.class, e.message]
      end
      held.flatten.grep(IO).first.close
      puts JSON.generate(failed)
    RUBY

    assert_empty failed
  end

  def test_the_reasons_name_what_is_missing
    reasons, garbage = child_json(<<~RUBY, requires: ["json"])
      Memscope.ledger
      Memscope::HeapGraph
      Process.setrlimit(:NOFILE, 64)
      held = []
      begin
        loop { held << File.open(File::NULL) }
      rescue Errno::EMFILE
        graph = Memscope.heap_graph
      end
      held.each(&:close)
      Process::UID.change_privilege(65_534) if Process.uid.zero?
      puts JSON.generate([graph.reasons, Memscope.ledger(garbage: true).reasons[:garbage]])
    RUBY

    assert_equal(["reachable_count"], reasons.keys)
    assert_match(/no descriptor is free/, reasons["reachable_count"])
    # No garbage is looked for in a sanitizer's malloc.
    assert_equal("refused by the kernel", garbage) if Process.uid.zero? && !ChildProcess::SANITIZER
  end

  def test_a_malloc_of_no_known_name
    skip_under_sanitizer
    answer = read("", preload: Compiled.shared("allocators/bump_malloc.c"))

    assert_equal("unknown", answer["allocator"]["name"])
    refute_empty(answer["ledger"]["reasons"])
    assert_empty(LedgerTree.new(answer["ledger"]).gaps)
  end

  [AllocatorFixtures::MIMALLOC, AllocatorFixtures::TCMALLOC].each do |library|
    define_method("test_#{library[/lib(\w+?)[_.]/, 1]}") do
      skip_under_sanitizer
      answer = read("", preload: library)

      assert_equal(library[/lib(\w+?)[_.]/, 1], answer["allocator"]["name"])
      assert_empty(LedgerTree.new(answer["ledger"]).gaps)
    end
  end

  private

  def read(restriction, **options)
    child_json("#{READINGS}\n#{restriction}\nreadings", **options)
  end

  def assert_closed(answer)
    tree = LedgerTree.new(answer["ledger"])

    assert_empty(tree.gaps)
    # The readings after the ledger allocate a little; a sanitizer, more.
    assert_in_delta(answer["statm"], tree.rss_bytes, (ChildProcess::SANITIZER ? 2 : 1) * 1024 * 1024)
  end
end
