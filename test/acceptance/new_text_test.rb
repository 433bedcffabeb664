# frozen_string_literal: true

require_relative "../test_helper"
require "fileutils"
require "tmpdir"

# A new text is an entry of its file, and its name where it is used. Some are planted here, in a copy of lib.
class NewTextTest < MemscopeTest
  parallelize_me!

  def setup
    super
    skip "lib has no extension with a sanitizer" if ChildProcess::SANITIZER
  end

  def test_a_reason_is_its_sentence
    out = run_copy(<<~RUBY, "value/reasons.words" => "planted\n  %s is planted here\n")
      reading = Memscope::ProcessMemory.capture({ reasons: { pss_bytes: [:planted, 4711] }, cost: {} })
      puts reading.reasons[:pss_bytes], Memscope::Unavailable.new(:planted, "it").message
    RUBY

    assert_equal "4,711 is planted here\nit is planted here\n", out
  end

  def test_a_metric_is_its_line_and_its_help
    metric = "planted_bytes snapshot gc.heap_live_slots\n  Planted here\n"
    out = run_copy(<<~RUBY, "show/metrics/definitions.txt" => metric)
      family = Memscope::Metrics.families.find { |one| one.name == "memscope_planted_bytes" }
      puts family.help, family.samples.first.value.positive?
    RUBY

    assert_equal "Planted here\ntrue\n", out
  end

  RULE = <<~RUBY
    module Memscope
      module Doctor
        module Rules
          rule(:planted, :rss_bytes) { { severity: :info, remedy: nil, figures: { number: 1_000 } } }
        end
      end
    end
  RUBY
  # rubocop:disable-next Style/FormatStringToken -- the form of the file
  TEXTS = <<~WORDS
    planted.subject
      what is planted
    planted.title
      %{number} rules are planted
    planted.why
      Their process is %{pid}.
    planted.returns
      Nothing
      does.
  WORDS

  def test_a_rule_of_the_doctor_is_its_entry_and_its_texts
    out = run_copy(<<~RUBY, "judge/doctor/rules/kernel.rb" => RULE, "judge/doctor/rules.words" => TEXTS)
      diagnosis = Memscope.doctor
      finding = diagnosis.find { |one| one.id == :planted }
      puts finding.title, finding.explanation.sub(Process.pid.to_s, "this one"), finding.unrecoverable_reason
      puts diagnosis.checked.find { |one| one.id == :planted }.subject
    RUBY

    assert_equal "1,000 rules are planted\nTheir process is this one.\nNothing does.\nwhat is planted\n", out
  end

  def test_an_option_is_a_line_of_help
    line = "        --planted N                  what is planted here\n"
    out = run_copy(<<~RUBY, "cli/help/ps.txt" => line)
      require "memscope/cli/cli"
      Memscope::CLI.run(%w[ps --help])
      exit Memscope::CLI.run(%w[ps --planted 7 --json], out: File.open(File::NULL, "w"))
    RUBY

    assert_includes out, line
  end

  private

  # Runs Ruby code with a copy of lib, to some of whose files text is added.
  def run_copy(code, added)
    Dir.mktmpdir do |directory|
      FileUtils.cp_r(File.join(ChildProcess::ROOT, "lib"), directory)
      added.each { |file, text| File.write(File.join(directory, "lib/memscope", file), text, mode: "a") }
      result = ChildProcess.run_command(RbConfig.ruby, "-I#{directory}/lib", "-rmemscope", "-e", code)

      assert_predicate result, :success?, result.to_s
      result.out
    end
  end
end
