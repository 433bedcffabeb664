# frozen_string_literal: true

require_relative "../test_helper"
require "json"

# While a forked child of memscope lives, it maps all pages of its process, so that none of them is private: what is
# private is then unknown, not wrong. The child is stopped, so that it lives while readings are taken.
class WithoutChildrenTest < MemscopeTest
  PATIENCE_SECONDS = 60

  STOPPED_CHILD = <<~RUBY.freeze
    def state_of(pid) = File.read("/proc/\#{pid}/stat")[/.*\\) (.)/, 1]
    def children = Dir["/proc/self/task/*/children"].flat_map { |path| File.read(path).split.map(&:to_i) }

    def stopped_child
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + #{PATIENCE_SECONDS}
      loop do
        children.each do |pid|
          Process.kill(:STOP, pid)
          sleep 0.001 while state_of(pid) == "R"
          next unless state_of(pid) == "T"

          at_exit { children.each { |left| Process.kill(:CONT, left) } } # where the script fails meanwhile
          return pid
        end
        abort "no child was found" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      rescue SystemCallError
        retry # the child or a thread has ended
      end
    end

    # What the block returns, read beside a stopped child: once more if the walk gave that child up before the block ended.
    def beside_a_stopped_child
      child = stopped_child
      read = yield
      Process.kill(:CONT, child)
      read
    rescue Errno::ESRCH
      retry
    end

    def private_sizes
      memory = Memscope.process_memory
      ledger = Memscope.ledger(shared: true, deep: true)
      malloc = ledger.rows.find { |row| row.id == :malloc }
      inherited = Memscope.const_get(:Native).inherited
      { rss: [memory.rss_bytes, ledger.rss_bytes],
        unread: [memory, ledger].map { |reading| reading.reasons.values_at(:uss_bytes, :shared, :trimmable_private_bytes) },
        sizes: [memory.uss_bytes, memory.pss_bytes, ledger.private_bytes],
        trimmable: malloc.detail[:trimmable_private_bytes],
        unshared: [inherited, Memscope.const_get(:Native).unshared("")].map { |known| known.is_a?(Array) ? known : known.class } }
    end

    kept = Array.new(300_000) { |index| "kept \#{index}" }
    walking = true
    walker = Thread.new { Memscope::Census.bounded(budget_us: 0) while walking }
  RUBY

  both_allocators "what is private is unknown while a child of memscope lives, and known before and after" do |preload|
    skip_under_sanitizer
    skip "this kernel does not list children" unless File.exist?("/proc/self/task/#{Process.pid}/children")
    during, after = child_json(<<~RUBY, preload: preload, requires: ["json"])
      #{STOPPED_CHILD}
      during = beside_a_stopped_child { private_sizes }
      walking = false
      walker.join
      puts JSON.generate([during, private_sizes])
    RUBY

    assert_all_known after, preload
    assert_unknown during
  end

  def assert_all_known(after, preload)
    rss, in_ledger = after["rss"]

    assert_in_delta rss, after["sizes"].first, rss / 2
    assert_in_delta in_ledger, after["sizes"].last, in_ledger / 2
    assert_equal %w[String Integer], after["unshared"]
    assert_kind_of Integer, after["trimmable"] unless preload
  end

  def assert_unknown(during)
    assert_equal [nil, nil, nil], during["sizes"]
    assert_nil during["trimmable"]
    assert_equal [["unread", "/proc/self/pagemap", "shared"]] * 2, during["unshared"]
    during["rss"].each { |bytes| assert_operator bytes, :>, 0 }
    during["unread"].flatten.compact.each { |reason| assert_match(/: a forked child of memscope shared/, reason) }
  end

  # Otherwise what a purge says the machine gained would be wrong by all that the process has in use.
  def test_a_purge_does_not_say_what_the_machine_gained_while_a_child_lives
    skip_under_sanitizer
    skip "this kernel does not list children" unless File.exist?("/proc/self/task/#{Process.pid}/children")
    gained, reason, page = child_json(<<~RUBY, requires: ["json"])
      #{STOPPED_CHILD}
      purge = beside_a_stopped_child { Memscope.purge(:trim) }
      walking = false
      walker.join
      puts JSON.generate([purge.returned_private_bytes, purge.reasons[:shared], purge.to_s])
    RUBY

    assert_nil gained
    assert_match(/a forked child of memscope shared all pages/, reason)
    assert_includes page.split.join(" "), reason.split.join(" ")
  end
end
