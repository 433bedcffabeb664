# frozen_string_literal: true

require "open3"
require_relative "../../test_helper"
require_relative "../../support/compiled"

# Compares the rules by which the engine unwinds a frame with readelf's output for the same tables: every row of the
# libraries that contain most frames.
class EngineUnwindRulesTest < MemscopeTest
  LIBRARIES = { of_ruby: /libruby/, of_the_c_library: /libc\.so/, with_functions_in_assembly: /libcrypto/ }.freeze

  def setup
    skip_under_sanitizer
    skip "rules are read on x86-64 with glibc" unless RUBY_PLATFORM.match?(/\Ax86_64-linux(-gnu)?\z/)
    skip "needs binutils" unless system("readelf", "--version", out: File::NULL)
  end

  LIBRARIES.each do |name, pattern|
    test = define_method("test_rules_#{name}") do
      path = loaded(pattern) || skip("is linked into the program")
      rows = rows_of(path)
      found = rules_of(path, rows.map(&:first))

      assert_operator rows.size, :>, 1000
      assert_equal rows.size, found.size
      assert_empty(rows.zip(found).reject { |(_, expected), rule| expected == rule }.first(10))
    end
    only_in_full(test) if name == :with_functions_in_assembly
  end

  private

  def loaded(pattern)
    require "openssl"
    mapped = File.readlines("/proc/self/maps", chomp: true).map { |line| line.split(nil, 6).last }
    mapped.grep(pattern).first&.then { |path| File.realpath(path) }
  end

  # The rules at start + 1: a return address after a call whose last byte is the row's first.
  def rules_of(path, starts)
    lookup = Compiled.program("engine/sampling/unwind_rules_lookup.c",
                              engine: %w[elf/object_lookup.c sampling/unwind_rules.c], arguments: ["-ldl"])
    addresses = starts.map { |start| format("%x\n", start + 1) }.join
    output, = Open3.capture2(lookup, path, stdin_data: addresses)
    output.lines(chomp: true)
  end

  # Where each row of each FDE starts, and the rule that the engine must find for it. Skips .debug_frame, which is not
  # loaded while a program runs.
  def rows_of(path)
    of_signals = {}
    columns = common = nil
    loaded = false
    IO.popen(["readelf", "-wF", path], err: File::NULL).each_line.with_object([]) do |line, rows|
      loaded = line.include?(".eh_frame") if line.start_with?("Contents of the ")
      next unless loaded

      case line
      when /^(?<place>\h+) \h+ \h+ CIE "(?<letters>[^"]*)"/
        of_signals[Regexp.last_match(:place)] = Regexp.last_match(:letters).include?("S")
        common = nil
      when /FDE cie=(\h+)/ then common = Regexp.last_match(1)
      when /^ +LOC / then columns = line.split
      when /^\h{16} / then rows << [line.hex, rule(columns, line, of_signals.fetch(common))] if common
      end
    end
  end

  # "r3 (rbx)" is one column.
  def rule(columns, line, of_signal)
    cfa, rbp, returns = columns.zip(line.gsub(/ \(\w+\)/, "").split).to_h.values_at("CFA", "rbp", "ra")
    rbp ||= "u"
    return "outermost" if returns == "u" && !of_signal
    return "other" unless !of_signal && cfa.match?(/\Ar[sb]p\+/) && rbp.match?(/\Au|c-/) && returns == "c-8"

    "#{cfa} #{rbp}"
  end
end
