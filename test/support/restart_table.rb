# frozen_string_literal: true

require_relative "policy_in_cluster"

# What each rule did to the same clusters: OOM kills, restarts and lost worker-seconds, by kind of trace.
class RestartTable
  # @param text [String] such as "1-3,1001-1008"
  # @return [Array<Integer>]
  def self.seeds(text)
    text.split(",").flat_map do |part|
      first, last = part.split("-").map { |number| Integer(number) }
      [*first..(last || first)]
    end
  end

  # @return [Hash{String => Hash{Symbol => Integer}}] the sums, by rule
  attr_reader :totals

  # @param rules [Array<String>] keys of RestartRules::ALL
  def initialize(rules = RestartRules::ALL.keys)
    @rules = rules
    @rows = {}
    @totals = rules.to_h { |rule| [rule, Hash.new(0)] }
  end

  # Runs one trace under each rule, unless nothing would start a worker again: there, no rule may stop one.
  def add(kind, seed, steps)
    trace = ClusterTrace.new(kind, seed, steps * WorkerCluster::STEP)
    return unless trace.supervisor

    @rules.each do |name|
      result = WorkerCluster.new(trace, RestartRules::ALL.fetch(name).call).run(steps)
      row = (@rows[kind] ||= @rules.to_h { |one| [one, Hash.new(0)] })[name]
      [row, @totals[name]].each do |sums|
        result.to_h.slice(:oom_kills, :restarts, :lost_seconds).each { |key, number| sums[key] += number }
      end
    end
  end

  # @return [Hash{Symbol => Integer}]
  def [](kind, rule) = @rows.fetch(kind).fetch(rule)

  # @return [String] three columns for each rule
  def to_s
    head = @rules.map { |rule| rule[0, 24].center(24) }
    names = @rules.map { "  OOM  restarts   lost h  " }
    rows = { **@rows, total: @totals }.map { |kind, row| line(kind, @rules.map { |rule| cells(row[rule]) }) }
    [line("", head), line("", names), *rows].join("\n")
  end

  private

  def line(kind, cells) = "#{kind.to_s.tr('_', ' ').ljust(14)}#{cells.join('|')}".rstrip

  def cells(sums)
    format("%<oom>5d %<restarts>9d %<lost>8.1f ", oom: sums[:oom_kills], restarts: sums[:restarts],
                                                  lost: sums[:lost_seconds] / 3600.0)
  end
end
