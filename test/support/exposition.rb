# frozen_string_literal: true

require "open3"

# Reads Prometheus's text format as strictly as its documentation describes it, since promtool accepts some errors:
# duplicate samples, a family that is not in one piece, a TYPE after the samples.
module Exposition
  Sample = Struct.new(:name, :labels, :value)
  LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"/
  LINE = /\A([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(#{LABEL}(?:,#{LABEL})*)\})? (-?[0-9.e+-]+)\z/
  UNESCAPED = { "\\\\" => "\\", '\"' => '"', '\n' => "\n" }.freeze

  PROMTOOL = ENV["PATH"].split(":").map { |path| File.join(path, "promtool") }.find { |path| File.executable?(path) }

  module_function

  # @return [Array(String, Integer)] promtool's output for the text, and its exit status
  def lint(text)
    out, status = Open3.capture2e(PROMTOOL, "check", "metrics", stdin_data: text)
    [out, status.exitstatus]
  end

  # @return [Hash{String => Array<Sample>}] by family, in order
  def parse(text)
    raise "no newline at the end" unless text.end_with?("\n")

    families = {}
    text.each_line(chomp: true) { |line| take(line, families) }
    families
  end

  def take(line, families)
    mark, name, rest = line.match(/\A# (HELP|TYPE) (\S+) (\S.*)\z/)&.captures
    case mark
    when "HELP"
      raise "#{name} begins twice" if families.key?(name)

      families[name] = []
    when "TYPE"
      raise "out of place: #{line}" unless families.keys.last == name && families[name].empty?
      raise "unknown: #{line}" unless %w[gauge counter].include?(rest)
    else add(line, families)
    end
  end

  def add(line, families)
    name, pairs = line.match(LINE)&.values_at(1, 2)
    raise "no sample: #{line}" unless name
    raise "out of place: #{line}" unless families.keys.last == name

    labels = pairs.to_s.scan(LABEL).to_h { |label, value| [label.to_sym, value.gsub(/\\./, UNESCAPED)] }
    raise "a label twice: #{line}" if labels.size != pairs.to_s.scan(LABEL).size
    raise "a sample twice: #{line}" if families[name].any? { |sample| sample.labels == labels }

    families[name] << Sample.new(name, labels, Float(line.split.last))
  end
end
