# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/diagnosed"
require_relative "../support/histories"

class DiagnosisTest < MemscopeTest
  include Diagnosed

  def sick = @sick ||= diagnose(**SICK)

  def test_the_worst_and_most_costly_first
    assert_equal %i[near_limit dirty_pages slab_slack], sick.map(&:id)
    assert_equal [:critical, false], [sick.severity, sick.healthy?]
  end

  def test_json_and_back
    diagnosis = Memscope::Diagnosis.from_h(JSON.parse(sick.to_json))

    assert_equal sick, diagnosis
    assert_equal ["diagnosis", 1], JSON.parse(sick.to_json).values_at("kind", "schema")
    assert_predicate diagnosis, :frozen?
    assert_equal 3, diagnosis.count
  end

  # The doctor says "No problems found" only if nothing is unknown.
  # In the text, and beside the check on the page and in JSON.
  def test_the_reason_of_a_check_that_could_not_be_made
    why = "objects cannot be walked while other Ractors are alive"
    diagnosis = diagnose(ledger: { held_by_objects_bytes: nil, reasons: { objects: why } },
                         process_memory: { swap_bytes: nil, reasons: { swap_bytes: "hidden by the kernel" } },
                         cgroup: { limit_bytes: nil, reasons: { limit_bytes: "unlimited" } })
    unknown = diagnosis.checked.select { |check| check.outcome == :unknown }

    assert_includes unknown.map(&:id), :native_memory
    assert_equal ["#{why}; hidden by the kernel"], unknown.map(&:reason).uniq
    assert_match(/Could not be checked: .* #{why}; hidden by the kernel/, diagnosis.to_s.gsub(/\s+/, " "))
  end

  def test_the_verdict
    garbage = { ledger: { garbage_max_bytes: mebibytes(192) } }
    unknown = { process_memory: { swap_bytes: nil } }

    { {} => [:none, true, "No problems found. RSS 188.0 MiB."],
      garbage => [:incomplete, nil, /No problems found by \d+ checks, but 1 could not be made/],
      { **garbage, snapshot: Charts.overdue } =>
        [:garbage, nil, "No verdict yet: up to 192.0 MiB in use may be garbage. RSS 188.0 MiB."],
      unknown => [:incomplete, nil, /No problems found by \d+ checks, but 1 could not be made/] }
      .each do |chart, (verdict, healthy, text)|
        diagnosis = diagnose(**chart)

        assert_equal [verdict, healthy.inspect], [diagnosis.verdict, diagnosis.healthy?.inspect]
        assert_match text, diagnosis.to_s.gsub(/\s+/, " ")
        refute_match(/No problems found\./, diagnosis.to_s) unless healthy
      end
  end

  def test_of_this_process
    diagnosis = Memscope.doctor

    assert_equal Process.pid, diagnosis.pid
    assert_operator diagnosis.cost.wall_us, :positive?
    assert_equal diagnosis, Memscope::Diagnosis.from_json(diagnosis.to_json)
    assert_equal Process.ppid, diagnosis.evidence.lint.environment.parent_pid
    assert_empty diagnosis.evidence.lint.environment.variables.keys - %i[LD_PRELOAD DYNO]
  end

  # A supervisor may set LD_PRELOAD for the programs that it starts, without having been started with it.
  def test_a_preload_for_children_is_none_of_this_process
    skip_under_sanitizer # which has to be preloaded in the children too
    preloads = ChildProcess.run(<<~RUBY, requires: %w[json rbconfig memscope]).json
      read = -> { Memscope.lint.environment.variables[:LD_PRELOAD].to_s }
      ENV["LD_PRELOAD"] = "/opt/libjemalloc.so.2"
      before = read.call
      script = "print(Memscope.lint.environment.variables[:LD_PRELOAD])"
      path = $LOAD_PATH.map { |directory| "-I\#{directory}" }
      started = IO.popen([RbConfig.ruby, *path, "-rmemscope", "-e", script], &:read)
      puts JSON.generate([before.include?("/opt"), started.include?("/opt")])
    RUBY

    assert_equal [false, true], preloads
  end

  # Too little of the RSS for a warning; the first line says it all the same, and so does the exit status.
  def test_little_growth_is_no_warning_and_not_nothing
    grown = between({ **row(:jit, 2000) }, { **row(:jit, 2015) })

    assert_equal [:grown, :info, true, true], [grown.verdict, grown.first.severity, grown.healthy?, grown.grown?]
    assert_match(/^  In 60 s, RSS changed by \+15\.0 MiB: jit \+15\.0, private 0\.0\. RSS 2,2\d\d\.\d\s+MiB\.$/,
                 grown.to_s)
    assert_equal grown, Memscope::Diagnosis.from_json(grown.to_json)
  end

  def test_the_noise_of_the_history_is_no_growth
    steady = Histories.judge(5) { {} }
    noisy = [4, 8].map do |noise|
      Memscope::Verdict.from_h(steady.to_h.merge(evidence: { **steady.evidence, noise_bytes: mebibytes(noise) }))
    end

    grown = noisy.map { |verdict| between({ **row(:jit, 5) }, { **row(:jit, 20), verdict: verdict }).grown? }

    assert_equal [true, false], grown
  end

  # While it is too early to judge, the rows that the history has sampled are what is compared.
  def test_no_headline_without_problems_over_growth_that_is_too_early_to_judge
    grown, still = [100, 9].map do |mebibytes|
      diagnose(verdict: Histories.judge(0.1) { |hour| { malloc: hour < 0.05 ? 0 : mebibytes } })
    end

    assert_equal [:too_early, :too_early, true], [grown.evidence.verdict.kind, grown.verdict, grown.healthy?]
    assert_match(/^  No verdict yet: memory has grown since the history began\. RSS 188\.0 MiB\.$/, grown.to_s)
    assert_match(/Since \d\d:\d\d\s+UTC, RSS changed by \+100\.0 MiB: malloc \+100\.0/, grown.to_s.gsub(/\s+/, " "))
    assert_equal %i[too_early none], [still.evidence.verdict.kind, still.verdict]
  end

  # Before the rows were sampled twice, only RSS is compared.
  def test_no_headline_without_problems_in_the_first_minute_of_growth
    verdicts = [100, 9].map do |mebibytes|
      diagnose(verdict: Histories.judge(0.01) { |hour| { malloc: hour < 0.005 ? 0 : mebibytes } })
    end

    assert_equal([nil, nil], verdicts.map { |one| one.evidence.verdict.growth })
    assert_equal %i[too_early none], verdicts.map(&:verdict)
    assert_equal ["memscope doctor --pid #{verdicts[0].evidence.verdict.pid} --gc --json --output before.json " \
                  "# a minute later: --gc --since before.json", nil], verdicts.map(&:next_command)
  end

  # A setting that no warning names does not help where memory grows.
  def test_the_next_command_is_about_what_has_grown
    setting = { problems: { too_many_arenas: { severity: :info, replacement: "MALLOC_ARENA_MAX=2" } } }
    jit = between({ **row(:jit, 2000), **setting }, { **row(:jit, 2015), **setting })
    unnamed = between({ **row(:other, 2000), **setting }, { **row(:other, 2015), **setting })

    assert_equal [%i[jit_growth too_many_arenas], "memscope report --pid 7"], [jit.map(&:id), jit.next_command]
    assert_equal [%i[too_many_arenas], true, nil], [unnamed.map(&:id), unnamed.grown?, unnamed.next_command]
    assert_equal jit.next_command, Memscope::Diagnosis.from_json(jit.to_json).next_command
  end

  def test_what_changes_by_less_than_ten_mebibytes_is_nothing
    same = between(row(:jit, 20), row(:jit, 29))

    assert_equal [:none, true, []], [same.verdict, same.healthy?, same.map(&:id)]
    assert_nil diagnose.changes
  end
end
