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

  # Puma's master seldom collects garbage: what it allocates for each report and each question stays for long.
  # Without the thread that samples, which allocates a MiB as it starts: on a busy machine, beside the questions.
  def test_no_buffer_is_left_for_a_collection
    report, question = child_json(<<~RUBY, requires: %w[json tmpdir memscope])
      require "memscope/remote/workers/cluster"
      Memscope.eager_load!
      cluster = Memscope::Workers::Cluster.new
      cluster.run
      Thread.list.find { |thread| thread.name == "memscope sampler" }.kill.join
      text = Memscope::Workers::Reporter.new(role: :worker, index: 0).read.to_json
      writer = cluster.instance_variable_get(:@channel).instance_variable_get(:@writer)
      report = ->(times) { times.times { writer.send(text, 0) && cluster.send(:receive) } }
      socket = Memscope.listen(path: File.join(Dir.mktmpdir, "socket")).path
      ask = 'ARGV[1].to_i.times { UNIXSocket.open(ARGV[0]) { |one| one.puts("{\\"call\\":\\"workers\\"}") || one.read } }'
      question = ->(times) { system(RbConfig.ruby, "-rsocket", "-e", ask, socket, times.to_s, exception: true) }
      GC.disable
      bytes = [report, question].map do |work|
        work.call(3)
        before = GC.stat(:malloc_increase_bytes)
        work.call(20)
        (GC.stat(:malloc_increase_bytes) - before) / 20
      end
      puts JSON.generate(bytes)
    RUBY

    assert_operator report, :<, 8_192
    assert_operator question, :<, 16_384
  end
end
