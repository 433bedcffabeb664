# frozen_string_literal: true

# What each constant of the verdict does to its figures: the battery of traces with known truth, with one constant
# halved or doubled in a copy of the sources. Prints the table of docs/verdict.md; SEEDS=10 traces by each generator,
# HOURS=48 long, take some twelve minutes of one core. CONSTANT=MIN_BIC_GAIN chooses constants.

require "fileutils"
require "tmpdir"
require_relative "../test/support/compiled"

SEEDS = Integer(ENV.fetch("SEEDS", "10"))
HOURS = ENV.fetch("HOURS", "48")
# Of each file: the constants that judge. Those that only size arrays or name units are left out.
CONSTANTS = {
  "floors.c" => %w[OUTLIER NEIGHBOURS],
  "growth.c" => %w[MIN_GROWTH_HOURS MIN_LATER_GROWTH_HOURS ONSET_PENALTY MIN_STEP_HEIGHT MIN_STEP_SHARPNESS
                   STEP_NEIGHBOURS],
  "growth.h" => %w[MEMSCOPE_DETECTION_ERRORS],
  "verdict.h" => %w[MEMSCOPE_PERSISTENCE_HOURS],
  "verdict.c" => %w[MIN_HOURS MIN_GROWTH_PER_DAY MIN_GROWTH_SHARE MIN_NOISE DRIFT_SHARE DRIFT_HOURS MAX_P_VALUE
                    MAX_VARIANCE_FACTOR LATEST_POINTS STEADY_SHARE MIN_PARTS WARM_UP_HOURS MIN_RISE_RATIO
                    POSITIVES_TO_CALL NEGATIVES_TO_CLEAR MIN_BIC_GAIN MAX_REMAINING_SHARE]
}.freeze
FACTORS = [0.5, 2].freeze
FIGURES = { "all_false_leaks" => "false leaks", "all_precision" => "precision", "all_recall_needs" => "recall",
            "all_layer_right" => "layer" }.freeze

# @return [Hash] the battery's figures, the share of "too early" at the end, and the median time to the first call of a
#   leak, as a multiple of the predicted time
def figures(engine)
  program = File.join(engine, "battery")
  sources = %w[trend/floors trend/growth trend/regression trend/statistics trend/verdict base/record].map do |name|
    File.join(engine, "#{name}.c")
  end
  battery = File.expand_path("../test/engine/trend/verdict_battery.c", __dir__)
  Compiled.run("cc", "-std=c11", "-O2", "-D_GNU_SOURCE", "-pthread", "-I#{engine}", "-I#{RecordStructs.write}",
               "-o", program, battery, *sources, "-lm")
  printed = Compiled.run(program, "51", (50 + SEEDS).to_s, HOURS)
  rows = printed.lines.grep(/\|/).drop(2).map { |line| line[26..].split("|").map(&:split) }
  calls = rows.filter_map { |row| row[2] && row[2][4].to_f }.reject(&:zero?).sort
  { **FIGURES.keys.to_h { |key| [key, printed[/^#{key} ([\d.]+)/, 1].to_f] },
    "early" => rows.sum { |row| row[0].first.to_f } / rows.size, "time" => calls[calls.size / 2] }
end

def with_constant(file, name, factor)
  Dir.mktmpdir do |directory|
    FileUtils.cp_r(File.join(Compiled::ENGINE, "base"), directory)
    FileUtils.cp_r(File.join(Compiled::ENGINE, "trend"), directory)
    path = File.join(directory, "trend", file)
    text = File.read(path)
    value = text[/^#define #{name} ([\d.]+)/, 1] or raise "#{file} has no constant #{name}"
    changed = value.to_f * factor
    changed = changed.ceil if value.to_f >= 1 && !value.include?(".")
    File.write(path, text.sub(/^(#define #{name}) [\d.]+/, "\\1 #{changed}"))
    [changed, figures(directory)]
  end
end

def row(name, value, found)
  numbers = [*found.values_at(*FIGURES.keys, "early").map { |number| format("%.1f", number) },
             format("%.2f", found["time"])]
  puts "| #{[name, value, *numbers].join(' | ')} |"
  $stdout.flush
end

puts "| constant | value | #{FIGURES.values.join(' | ')} | too early | time |", "|---|---|---|---|---|---|---|---|"
row("as it is", "", Dir.mktmpdir do |directory|
  FileUtils.cp_r([File.join(Compiled::ENGINE, "base"), File.join(Compiled::ENGINE, "trend")], directory)
  figures(directory)
end)
CONSTANTS.each do |file, names|
  names.each do |name|
    next if ENV["CONSTANT"] && ENV["CONSTANT"] != name

    FACTORS.each { |factor| row("`#{name}`", *with_constant(file, name, factor)) }
  end
end
