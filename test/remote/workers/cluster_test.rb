# frozen_string_literal: true

require_relative "../../test_helper"

class WorkersClusterTest < MemscopeTest
  # Puma's master collects before it forks, so that its later GCs write to no page that it shares with its workers.
  def test_objects_are_old_before_a_fork_and_little_garbage_is_left_alone
    aged, collections = child_json(<<~RUBY, requires: %w[json memscope])
      require "memscope/remote/workers/cluster"
      cluster = Memscope::Workers::Cluster.new
      GC.start
      old = GC.stat(:old_objects)
      kept = Array.new(50_000) { Object.new }
      cluster.prepare_fork
      counts = [GC.count]
      cluster.send(:tidy)
      counts << GC.count
      100_000.times { Object.new }
      cluster.send(:tidy)
      puts JSON.generate([GC.stat(:old_objects) - old, [*counts, GC.count]])
      kept.clear
    RUBY

    assert_operator aged, :>=, 45_000
    assert_equal collections[0], collections[1]
    assert_operator collections[2], :>, collections[1]
  end

  # Whoever writes to shared memory needs pages of its own, even where it is free: 16 MiB are whole pages here, and 8
  # MiB small blocks, which glibc files by size at the first malloc of a large one.
  def test_what_is_free_before_a_fork_is_returned_or_filed
    skip "for glibc's malloc" unless Memscope.allocator.name == :glibc
    returned, dirtied = child_json(<<~RUBY, requires: %w[json memscope])
      require "memscope/remote/workers/cluster"
      kib = ->(name) { File.read("/proc/self/smaps_rollup")[/^\#{name}: +(\\d+)/, 1].to_i }
      GC.disable
      texts = { 20_000 => 1_600, 600 => 28_000 }.flat_map { |bytes, count| Array.new(count) { "x" * bytes } }
      kept = texts.select.with_index { |_text, at| at.odd? }
      texts.clear
      full = kib["Rss"]
      GC.enable
      Memscope::Workers::Cluster.new.prepare_fork
      reader, writer = IO.pipe
      Process.wait(fork do
        GC.disable
        String.new(capacity: 100_000)
        writer.puts(kib["Private_Dirty"])
        exit!
      end)
      puts JSON.generate([full - kib["Rss"], reader.gets.to_i])
      kept.clear
    RUBY

    assert_operator returned, :>, 8_000
    assert_operator dirtied, :<, 4_000
  end
end
