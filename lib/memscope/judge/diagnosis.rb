# frozen_string_literal: true

Memscope::Loading.units :Arenas, :Census, :Diff, :Fragmentation, :HeapGraph, :Lint, :Mappings, :Verdict
Memscope::Loading.unit :Blocks, Memscope::RubyHeap

module Memscope
  Record.declare(__FILE__)

  # One thing that the doctor found: the numbers that show it, how much memory it affects, how much of that can be
  # returned, and how.
  class Finding < Record
    # The worst first.
    SEVERITIES = declared(:severity).one_of

    # @return [Boolean] whether the finding makes the process unhealthy
    def unhealthy? = severity != :info
  end

  # The doctor's verdict on a process: its findings, the worst and largest first, and all checks.
  #
  #   diagnosis = Memscope.doctor
  #   diagnosis.healthy?              # => false
  #   diagnosis.first.title           # => "651.6 MiB is free inside malloc, and a trim returns it"
  #   diagnosis.first.remedy          # => "memscope purge --pid 4711 trim"
  #   puts diagnosis
  class Diagnosis < Reading
    require_relative "doctor/evidence" # nested in this class

    # Bytes. Greater growth since an earlier diagnosis is reported.
    GROWN = Verdict::GROWN

    include Collection

    # @return [Boolean, nil] false if a finding is a warning or critical; nil if `verdict` is :unknown, :garbage or
    #   :incomplete; else true
    def healthy? = { problems: false, none: true, grown: true, too_early: true }[verdict]

    # @return [Symbol] :problems if a finding is a warning or critical; :unknown without an RSS; :garbage if malloc has
    #   grown, since the last major GC, by more than Ruby usually allows, so that only a collection can show how much of
    #   it is garbage; :grown if memory has grown since an earlier diagnosis; :too_early if it has since the history
    #   began, and the history is too short for a verdict; :incomplete if some check could not be made; else :none
    def verdict
      return :problems if findings.any?(&:unhealthy?)
      return :unknown unless evidence.ledger.rss_bytes
      return :garbage if findings.any? { |finding| finding.id == :possible_garbage && finding.confidence == :likely }

      growth || (checked.any? { |check| check.outcome == :unknown } ? :incomplete : :none)
    end

    # @return [Boolean] whether RSS, USS or a row has grown since an earlier diagnosis: by more than GROWN and, if the
    #   history knows the noise of RSS, by more than two of its standard deviations
    def grown? = beyond_noise?(changes.to_h.values)

    # @api private
    # @return [Hash{Symbol => Symbol}] the severities of the findings by id, for the next diagnosis
    def severities = findings.to_h { |finding| [finding.id, finding.severity] }

    # @api private
    # @param earlier [Hash{Symbol => Symbol}] severities of an earlier diagnosis
    # @return [Array<Finding>] those that are now more severe. One that was not there counts as :info
    def worse_than(earlier)
      rank = Finding::SEVERITIES.method(:index)
      findings.select { |finding| rank.call(finding.severity) < rank.call(earlier.fetch(finding.id, :info)) }
    end

    # @return [Symbol, nil] the severity of the worst finding: :critical, :warning or :info; nil without findings
    def severity = Finding::SEVERITIES.find { |severity| findings.any? { |finding| finding.severity == severity } }

    # @return [String, nil] the command to run next: the first one of the worst finding that has a remedy; without a
    #   warning, the first one of a finding of growth; if it is too early, the one that compares; else nil
    def next_command
      told = findings.any?(&:unhealthy?) ? findings : findings.select { |finding| finding.evidence.key?(:seconds) }
      remedy = told.filter_map(&:remedy).first || (evidence.verdict.remedy if verdict == :too_early)
      remedy && remedy.lines.first.chomp
    end

    private

    def beyond_noise?(growth)
      noise = evidence.verdict&.evidence&.fetch(:noise_bytes, nil)
      growth.any? { |bytes| bytes > [GROWN, 2 * noise.to_f].max }
    end

    def growth
      return :grown if grown?

      early = evidence.verdict
      :too_early if early&.kind == :too_early &&
                    beyond_noise?([early.evidence[:grown_bytes].to_i, *early.growth.to_h.values])
    end
  end
end
