# frozen_string_literal: true

require_relative "test_helper"

# Files load in any order, without any warning from Ruby, such as those about circular requires.
class LoadingTest < MemscopeTest
  parallelize_me!

  FILES = Dir.children(File.join(ChildProcess::ROOT, "lib/memscope")).filter_map { |name| name[/\A\w+(?=\.rb\z)/] }
             .sort.freeze
  # These need a gem, and say so; memscope/railtie is loaded by Rails.
  NOT_ALONE = %w[open_telemetry prometheus_collector railtie web yabeda].freeze

  # Loads each file alone, in a forked child that has loaded nothing else.
  EACH = <<~'RUBY'
    ARGV[0].split(",").each do |name|
      pid = fork do
        require "memscope" if ARGV[1] == "after"
        require "memscope/#{name}"
      end
      warn "memscope/#{name} fails" unless Process.wait2(pid).last.success?
    end
  RUBY

  ALL = <<~RUBY
    %i[rss allocator snapshot ledger mappings arenas size_classes fragmentation ruby_heap census process_memory cgroup lint
       tune].each { |call| Memscope.public_send(call).then { |reading| reading.to_s + reading.to_json } }
    Memscope.ledger(deep: true, shared: true, objects: true, strict: true).to_s
    Memscope.report
    Memscope.purge(dry_run: true).to_s
    Memscope.purge.to_s
    earlier = Memscope.doctor
    Memscope.doctor(since: earlier.to_json).to_s
    (Memscope.snapshot - earlier.evidence.snapshot).to_s
  RUBY

  %w[before after].each do |order|
    define_method("test_each_file_loads_#{order}_memscope") do
      assert_silent_child ChildProcess.run("ARGV.replace(#{[(FILES - NOT_ALONE).join(','), order].inspect})\n#{EACH}",
                                           ruby_args: ["-w"], gems: true)
    end
  end

  both_allocators "everything that memscope does" do |preload|
    assert_silent_child ChildProcess.run(ALL, preload: preload, requires: %w[json memscope], ruby_args: ["-w"])
  end

  # Only a malloc profile needs these 100 KiB.
  def test_the_unwinder_is_loaded_with_the_first_profile
    skip_under_sanitizer
    mapped = ChildProcess.run('puts File.read("/proc/self/maps").include?("libgcc_s")', requires: ["json"]).json
    skip "this Ruby is linked with libgcc_s itself" if mapped
    before, after = child_json(<<~RUBY, requires: ["json"])
      mapped = -> { File.read("/proc/self/maps").include?("libgcc_s") }
      before = mapped.call
      Memscope.malloc_profile(backend: :imports) { "x" * 100_000 }
      puts JSON.generate([before, mapped.call])
    RUBY

    assert_equal [false, true], [before, after]
  end

  def assert_silent_child(ran)
    assert_predicate ran, :success?, ran
    assert_empty ran.err.lines.grep(/memscope/).join
  end
end
