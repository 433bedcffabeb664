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
