# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/ledger_tree"

# Readings where Ruby allows least: in a trap handler, and while another Ractor is alive, or inside it.
class TrapTest < MemscopeTest
  parallelize_me!

  both_allocators "readings in a trap handler" do |preload|
    answer = child_json(<<~RUBY, preload: preload)
      names = %i[rss ledger allocator process_memory cgroup ruby_heap snapshot]
      answers = nil
      trap(:USR1) { answers = names.map { |name| Memscope.public_send(name) } }
      Process.kill(:USR1, Process.pid)
      sleep 0.01 until answers
      ledger = answers[1]
      require "json"
      puts JSON.generate(rss: answers[0], ledger: JSON.parse(ledger.to_json), classes: answers.map { |a| a.class.name })
    RUBY

    assert_kind_of(Integer, answer["rss"])
    assert_empty(LedgerTree.new(answer["ledger"]).gaps)
    assert_equal(%w[Integer] + %w[Ledger Allocator ProcessMemory Cgroup RubyHeap Snapshot].map { |n| "Memscope::#{n}" },
                 answer["classes"])
  end

  # What loads files first is loaded beforehand.
  def test_a_first_judgement_in_a_trap_handler
    answer = child_json(<<~RUBY)
      require "json"
      Memscope.eager_load!
      answers = nil
      trap(:USR1) { answers = %i[verdict history].map { |name| Memscope.public_send(name).class.name } }
      Process.kill(:USR1, Process.pid)
      sleep 0.01 until answers
      puts JSON.generate(answers)
    RUBY

    assert_equal(%w[Memscope::Verdict Memscope::History], answer)
  end

  both_allocators "a ledger beside a Ractor" do |preload|
    answer = child_json(<<~RUBY, preload: preload, ruby_args: ["-W:no-experimental"])
      require "json"
      ractor = Ractor.new { kept = Array.new(1_000); loop { kept[rand(1_000)] = "x" * rand(1_000) } }
      ledgers = Array.new(50) { Memscope.ledger }
      puts JSON.generate(ledgers.map { |ledger| JSON.parse(ledger.to_json) })
      $stdout.flush
      exit!(ractor ? 0 : 1)
    RUBY

    assert_empty(answer.flat_map { |ledger| LedgerTree.new(ledger).gaps })
    answer.each { |ledger| refute_empty(ledger["reasons"]) }
  end

  # memscope does not declare itself Ractor-safe, so Ruby itself refuses; what matters is that nothing crashes.
  def test_a_reading_inside_a_ractor
    result = ChildProcess.run(<<~RUBY, requires: ["memscope"], ruby_args: ["-W:no-experimental"])
      begin
        ractor = Ractor.new { Memscope.rss }
        ractor.respond_to?(:value) ? ractor.value : ractor.take # take until 4.0
      rescue Ractor::RemoteError => error
        puts error.cause.class
      end
    RUBY

    assert_predicate(result, :success?, result.to_s)
    assert_equal("Ractor::UnsafeError\n", result.out)
  end
end
