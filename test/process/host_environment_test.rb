# frozen_string_literal: true

require_relative "../test_helper"
require "json"
require "memscope/process/host_environment"

class HostEnvironmentTest < MemscopeTest
  HostEnvironment = Memscope::HostEnvironment

  def test_this_process
    threads = [tasks] # OS threads, which end a moment after Ruby's
    now = HostEnvironment.read(Memscope.cgroup)
    threads << tasks

    assert_equal Etc.nprocessors, now.cpus
    assert_includes Range.new(*threads.minmax), now.threads
    assert_equal Process.ppid, now.parent_pid
    assert_operator now.started, :>, 0
    assert_includes [nil, "always", "madvise", "never"], now.thp_mode
    refute_predicate now, :thp_enabled?, "CRuby turns them off"
  end

  def tasks = Dir.children("/proc/self/task").size

  def test_forks
    script = <<~RUBY
      require "memscope/process/host_environment"
      require "json"
      read = -> { Memscope::HostEnvironment.read(Memscope.cgroup) }
      spawned = spawn("sleep", "600") # returns after the child's exec
      before = read.call
      reader, writer = IO.pipe
      child = fork { writer.puts read.call.to_json; writer.close; sleep }
      answer = reader.gets
      puts JSON.generate([before.to_h, read.call.to_h, JSON.parse(answer)])
      Process.kill(:KILL, child, spawned)
    RUBY
    before, master, worker = child_json(script)

    assert_equal([[false, false], [false, true], [true, false]],
                 [before, master, worker].map { |process| process.values_at("forked", "forks") })
  end

  # GC.config is of Ruby 3.4.
  def test_what_the_collector_and_the_tracer_do
    told = child_json(<<~RUBY, requires: %w[json objspace memscope], env: { "RUBY_GC_MALLOC_LIMIT" => "\xFF" })
      read = -> { Memscope.lint.environment.then { |now| [now.allocation_tracing?, now.major_collections?] } }
      first = read.call
      def GC.config = { rgengc_allow_full_mark: false }
      ObjectSpace.trace_object_allocations_start
      second = read.call
      ObjectSpace.trace_object_allocations_stop
      environment = Memscope.lint.environment
      puts JSON.generate([first[0], second, environment.variables.except(:LD_PRELOAD), environment.allocation_tracing?,
                          environment.max_mappings])
    RUBY
    limit = Integer(File.read("/proc/sys/vm/max_map_count"))

    assert_equal [false, [true, false], { "RUBY_GC_MALLOC_LIMIT" => "\uFFFD" }, false, limit], told
  end

  def test_what_the_kernel_does_not_say
    nothing = HostEnvironment.read(Memscope.cgroup, proc_root: "/nonexistent", sys_root: "/nonexistent")

    assert_equal [nil] * 7, [nothing.threads, nothing.forked?, nothing.forks?, nothing.started, nothing.thp_mode,
                             nothing.thp_gaps, nothing.thp_enabled?]
    refute_predicate nothing, :forking?
  end
end
