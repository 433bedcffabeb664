# frozen_string_literal: true

require_relative "collection"

module Memscope
  # One thing that the doctor found: the numbers that show it, how much memory it affects, how much of that can be
  # returned, and how.
  class Finding < Record
    # From the worst on.
    SEVERITIES = %i[critical warning info].freeze

    # @return [Symbol] of the rule
    field :id, :symbol, null: false
    # @return [Symbol] one of SEVERITIES; an :info leaves the process healthy
    field :severity, :symbol, null: false, one_of: SEVERITIES
    # @return [Symbol] :certain where the numbers prove it, :likely where another cause is possible
    field :confidence, :symbol, null: false, one_of: %i[certain likely]
    # @return [String] one line, with the bytes
    field :title, :string, null: false
    # @return [String] what the numbers mean, for people
    field :explanation, :string, null: false
    # @return [Hash{Symbol => Object}] the numbers; `floor_bytes` and `floor_ratio` are the thresholds they reached
    field :evidence, :hash, null: false
    # @return [Integer, nil] memory that it affects; nil where it is about no amount
    field :affected_bytes, :bytes
    # @return [Integer, nil] what the remedy returns, at least; nil where nothing in this process returns it
    field :recoverable_bytes, :bytes
    # @return [Integer, nil] what it returns at most; equal where the amount is exact
    field :recoverable_max_bytes, :bytes
    # @return [String, nil] why recoverable_bytes is nil
    field :unrecoverable_reason, :string
    # @return [String, nil] code, a setting or a command to paste
    field :remedy, :string
    # @return [String, nil] what the remedy costs: "requires a restart; causes more TLB misses"
    field :remedy_cost, :string

    # @return [Boolean] whether it makes a process unhealthy
    def unhealthy? = severity != :info
  end

  # The doctor's verdict on a process: its findings, the worst and largest first, and all checks.
  #
  #   diagnosis = Memscope.doctor
  #   diagnosis.healthy?              # => false
  #   diagnosis.first.title           # => "651.6 MiB is free inside malloc; a trim returns it"
  #   diagnosis.first.remedy          # => "Memscope.purge(:trim)"
  #   puts diagnosis
  class Diagnosis < Reading
    # One rule, and its outcome.
    class Check < Record
      # @return [Symbol] the rule's, which its finding has too
      field :id, :symbol, null: false
      # @return [String] what the rule looks for
      field :subject, :string, null: false
      # @return [Symbol] :found; :clear, nothing significant; :inapplicable, does not apply to this process;
      #   :unknown, could not be checked
      field :outcome, :symbol, null: false, one_of: %i[found clear inapplicable unknown]
      # @return [String, nil] why it is inapplicable or unknown
      field :reason, :string
    end

    require_relative "doctor/evidence" # a part of it, and a class inside this one

    # @return [Array<Finding>]
    collection :findings, [Finding]
    # @return [Array<Check>]
    field :checked, [Check], null: false
    # @return [Evidence] the readings that the verdict rests on
    field :evidence, Evidence, null: false

    # @return [Boolean, nil] whether no finding is a warning or critical; nil where the RSS is unknown
    def healthy?
      return false if findings.any?(&:unhealthy?)

      true if evidence.ledger.rss_bytes
    end

    # @return [Symbol, nil] of the worst finding: :critical, :warning or :info
    def severity = Finding::SEVERITIES.find { |severity| findings.any? { |finding| finding.severity == severity } }
  end
end
