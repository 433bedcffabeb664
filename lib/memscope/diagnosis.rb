# frozen_string_literal: true

require_relative "reading"
require_relative "finding"

module Memscope
  # What the doctor says of a process: its findings, the worst and most costly first, and all that was looked for.
  #
  #   diagnosis = Memscope.doctor
  #   diagnosis.healthy?              # => false
  #   diagnosis.first.title           # => "651.6 MiB are free inside malloc, and a trim returns them"
  #   diagnosis.first.remedy          # => "Memscope.purge(:trim)"
  #   puts diagnosis
  class Diagnosis < Reading
    # One rule, and what came of it.
    class Check < Record
      # @!attribute [r] id
      #   @return [Symbol] of the rule, and of its finding
      field :id, :symbol, null: false
      # @!attribute [r] subject
      #   @return [String] what was looked for
      field :subject, :string, null: false
      # @!attribute [r] outcome
      #   @return [Symbol] :found; :clear, not there or too little to matter; :inapplicable, cannot be in this process;
      #     :unknown, could not be told
      field :outcome, :symbol, null: false, one_of: %i[found clear inapplicable unknown]
      # @!attribute [r] reason
      #   @return [String, nil] why it is inapplicable or unknown
      field :reason, :string
    end

    require_relative "diagnosis/evidence" # a part of it, and a class inside this one

    alias reading_to_h to_h
    private :reading_to_h
    include Enumerable

    # @!attribute [r] findings
    #   @return [Array<Finding>]
    field :findings, [Finding], null: false
    # @!attribute [r] checked
    #   @return [Array<Check>]
    field :checked, [Check], null: false
    # @!attribute [r] evidence
    #   @return [Evidence] the readings that it rests on
    field :evidence, Evidence, null: false

    # @param text [String] JSON, as `to_json` gives it
    # @return [Diagnosis]
    # @raise [ArgumentError] when it is none
    def self.parse(text)
      require "json"
      from_h(JSON.parse(text))
    rescue JSON::ParserError
      raise ArgumentError, "#{name}.parse: given what is no JSON, allowed: what to_json gave"
    end

    # @yield [Finding]
    # @return [Enumerator<Finding>, self] an Enumerator without a block
    def each(&block)
      return enum_for(:each) { findings.size } unless block

      findings.each(&block)
      self
    end

    # @return [Hash{Symbol => Object}] as of every reading; Enumerable's would want pairs
    def to_h = reading_to_h

    # @return [Boolean, nil] whether no finding is a warning or critical; nil where not even the RSS is known
    def healthy?
      return false if findings.any?(&:unhealthy?)

      true if evidence.ledger.rss_bytes
    end

    # @return [Symbol, nil] of the worst finding: :critical, :warning or :info
    def severity = Finding::SEVERITIES.find { |severity| findings.any? { |finding| finding.severity == severity } }
  end
end
