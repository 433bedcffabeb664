# frozen_string_literal: true

require_relative "../../value/quantity"

module Memscope
  module Doctor
    # One rule, as data. An entry that depends on the process is a lambda that takes the process's Figures; the first
    # four entries below can also be the name of a figure. The lambda of a text, or of the remedy, can take the affected
    # bytes as a second argument.
    #
    # * inapplicable: why the rule does not apply to this process, a String; nil if it applies.
    # * affected: the bytes that the rule concerns; nil if unknown.
    # * present: a further condition, or the only one if the rule concerns no number of bytes.
    # * recoverable: the bytes that the remedy returns, a Range; or a String, why nothing in this process
    #   returns them.
    # * id, subject: the rule's name, and what the rule looks for.
    # * floor, ratio, of: the bytes must reach both the floor and this share of the figure `of` (by default the RSS):
    #   neither a large share of little memory nor a small share of much memory is worth a remedy.
    # * remedy: an Array of Finding's remedy and remedy_cost, or a lambda.
    # * severity, confidence, title, explanation, evidence: as in Finding; a value or a lambda.
    #
    # A finding is unhealthy only if it exceeds its thresholds by a tenth, or did so before and still reaches them.
    # Without this margin, a number that hardly moves could change the verdict from one reading to the next. The margin
    # applies to the floor, to the ratio, and to whatever a lambda asks by Figures#reaches?.
    #
    # @api private
    class Rule
      DEFAULTS = { inapplicable: nil, affected: nil, present: true, recoverable: nil, floor: 0, ratio: 0.0,
                   of: :rss_bytes, severity: :warning, confidence: :certain, evidence: {}, remedy: nil }.freeze
      # By how much numbers must exceed their thresholds to make a finding unhealthy, unless it was unhealthy in the
      # last verdict.
      MARGIN = 1.1
      private_constant :DEFAULTS, :MARGIN

      # @return [Symbol]
      attr_reader :id

      def initialize(id:, subject:, title:, explanation:, **rest)
        unknown = rest.keys - DEFAULTS.keys
        raise ArgumentError, "#{id}: #{unknown.join(', ')}" unless unknown.empty?

        @id = id
        @subject = subject
        @rule = { **DEFAULTS, title: title, explanation: explanation, **rest }.freeze
        freeze
      end

      # @param figures [Figures]
      # @param held [Symbol, nil] the severity of this rule's finding in the last verdict
      # @return [Array(Hash, Hash)] the bodies of a Diagnosis::Check and of a Finding; nil for the Finding if there is
      #   none
      def judge(figures, held = nil)
        reason = figures.ledger.reasons[:extension]
        return [check(:unknown, reason), nil] if reason

        reason = figure(:inapplicable, figures)
        return [check(:inapplicable, reason), nil] if reason

        bytes = figure(:affected, figures)
        return [check(:unknown, figures.missing), nil] if @rule[:affected] && bytes.nil?
        return [check(:clear), nil] unless (severity = severity(figures, bytes))

        [check(:found), finding(figures, bytes, settled(severity, figures, bytes, held))]
      end

      private

      def check(outcome, reason = nil) = { id: id, subject: @subject, outcome: outcome, reason: reason }

      def enough?(bytes, figures)
        return true if bytes.nil?

        [@rule[:floor], @rule[:ratio] * (figures.public_send(@rule[:of]) || 0)].all? do |threshold|
          figures.reaches?(bytes, threshold)
        end
      end

      # Returns nil unless the rule's conditions hold.
      def severity(figures, bytes)
        value(:severity, figures) if enough?(bytes, figures) && figure(:present, figures)
      end

      # Returns the severity of the last verdict, but at least the severity with the margin and at most the one without.
      def settled(severity, figures, bytes, held)
        beyond = figures.with_margin(MARGIN) { severity(figures, bytes) }
        most, least, before = [severity, beyond || :info, held || :info].map { |one| Finding::SEVERITIES.index(one) }
        Finding::SEVERITIES[before.clamp(*[most, least].sort)]
      end

      def finding(figures, bytes, severity)
        remedy, cost = value(:remedy, figures, bytes)
        { id: id, severity: severity, confidence: value(:confidence, figures),
          title: value(:title, figures, bytes), explanation: value(:explanation, figures, bytes),
          evidence: evidence(figures), affected_bytes: bytes, remedy: remedy, remedy_cost: cost,
          **recoverable(figure(:recoverable, figures)) }
      end

      def evidence(figures)
        floors = { floor_bytes: @rule[:floor], floor_ratio: @rule[:ratio], floor_ratio_of: @rule[:of] }
        { **value(:evidence, figures).compact, **(@rule[:floor].zero? && @rule[:ratio].zero? ? {} : floors) }
      end

      def recoverable(amount)
        return { unrecoverable_reason: amount } unless amount.is_a?(Range)

        { recoverable_bytes: amount.begin, recoverable_max_bytes: amount.end }
      end

      def figure(name, figures) = @rule[name].is_a?(Symbol) ? figures.public_send(@rule[name]) : value(name, figures)

      def value(name, *arguments)
        value = @rule[name]
        return value unless value.is_a?(Proc)

        value.call(*arguments.first(value.arity))
      end
    end

    # All rules, and what they share. Amounts below FLOOR are not worth a remedy.
    #
    # @api private
    module Rules
      extend Quantity

      MEBIBYTE = Quantity::MEBIBYTE
      # Bytes.
      FLOOR = 16 * MEBIBYTE
      # Bytes. If at least this much memory may be garbage, it matters how much of it is garbage.
      MUCH = 192 * MEBIBYTE

      GLIBC = ->(f) { "glibc does not serve malloc" unless f.glibc? }
      JEMALLOC = ->(f) { "jemalloc does not serve malloc" unless f.jemalloc? }
      LIMITED = ->(f) { "the container has no limit that memscope can read" unless f.cgroup.limit_bytes }
      # The kernel's numbers and settings of huge pages, for the evidence.
      HUGE = lambda do |f|
        { anonymous_huge_bytes: f.process_memory.anonymous_huge_bytes, huge_pages: f.environment.thp_mode,
          huge_page_gaps: f.environment.thp_gaps }
      end
      NO_HUGE_PAGES = ["MALLOC_CONF=thp:never",
                       "requires a restart; keep MALLOC_CONF's other options; causes more TLB misses"].freeze
      private_constant :MEBIBYTE, :MUCH, :GLIBC, :JEMALLOC, :LIMITED, :HUGE, :NO_HUGE_PAGES

      class << self
        # @return [Array<Rule>]
        def all
          [*SMALL, *GROWTH, *ROW_GROWTH, *SETTINGS, *GLIBC_RULES, *JEMALLOC_RULES, *COLLECTOR_RULES, *RUBY_RULES,
           *KERNEL_RULES, *KNOWN_RULES]
        end

        private

        # Makes rules from their attributes by id; `shared` holds attributes of all of them, which a rule can override.
        def table(shared = {}, **rules) = rules.map { |id, own| Rule.new(id: id, **shared, **own) }.freeze

        # A rule on what has grown since the earlier diagnosis.
        #
        # @param now [Proc] Figures => the bytes now
        # @param affected [Symbol, Proc] the bytes by which they have grown
        # @param why [Proc] Figures, bytes => sentences
        def growth(now:, why:, affected: ->(f) { f.growth_of(&now) }, **own)
          { inapplicable: :incomparable, affected: affected, floor: GROWN, recoverable: "The memory is in use.",
            severity: ->(f) { GROWTH_SEVERITY.call(f, affected.to_proc.call(f)) },
            explanation: lambda do |f, bytes|
              ["In #{format('%.1f', f.seconds)} s, it grew from #{size(now.call(f) - bytes)} to #{size(now.call(f))}.",
               *why.call(f, bytes), *by_history(f)].join(" ")
            end,
            evidence: ->(f) { { seconds: f.seconds, **f.both(:rss_bytes), now_bytes: now.call(f) } }, **own }
        end

        # The command for a process that listens.
        def purge(figures, *levers) = "memscope purge --pid #{figures.ledger.pid} #{levers.join(' ')}"

        # The command that shows which lines allocate, without a restart.
        def profile(figures) = "memscope profile --pid #{figures.ledger.pid} --backend=imports --seconds 30"

        # The command that judges again, after a collection; nil after one.
        def collect(figures) = ("memscope doctor --pid #{figures.ledger.pid} --gc" unless figures.ledger.collected)

        # The command that shows which constant, variable or thread holds objects.
        def heap(figures) = "memscope heap --pid #{figures.ledger.pid}"

        # Sentences on who holds objects and which class grew; none if nothing is kept that can explain so many bytes.
        def holders(figures, bytes)
          kept = figures.objects or return []
          held = ", mostly in #{count(kept.held_count)} #{kept.held_class}" if kept.held_class
          graph = "In the heap graph of #{kept.graph_at.strftime('%F %T')} UTC, #{kept.holder} holds " if kept.holder
          since = "In #{format('%.0f', kept.census_seconds)} s between the last two censuses, " if kept.grown_class
          grown = kept.grown_bytes.to_i
          [*("#{graph}#{size(kept.holder_bytes)}#{held}." if graph && kept.holder_bytes >= bytes / 4),
           *("#{since}#{kept.grown_class} grew most, by #{size(grown)}." if grown >= MEBIBYTE)]
        end

        # A sentence on classes of C code whose objects hold memory that Ruby does not know of, if more objects came;
        # nil if none are known to have come.
        def unsized(figures)
          return unless (rows = figures.objects&.unsized)&.any?

          came = rows.map { |row| "#{count(row.change)} #{row.name}" }.join(", ")
          "Between the last two censuses came #{came}: Ruby does not know how much memory such objects hold. " \
            "`#{heap(figures)} --paths-to CLASS` shows what keeps them."
        end

        # What the process's history shows; nil if it is absent or too short.
        def by_history(figures) = ("By its history: #{figures.verdict.sentence}" if figures.judged?)

        def per_hour(bytes) = "#{mebibytes(bytes.round)} MiB/h"

        # A sentence on how much of the memory in use is garbage; if that is unknown, on how much may be garbage. nil if
        # the amount is too little to matter, as right after a collection.
        def unjudged(figures)
          bytes = figures.garbage_bytes
          if figures.garbage
            return ("#{size(bytes)} of what is in use is garbage that Ruby has not collected." if bytes >= FLOOR)
          end

          "Up to #{size(bytes)} of what is in use may be garbage." if bytes && bytes >= MEBIBYTE
        end

        # Why nothing returns the free memory between used blocks; or, if these blocks may be garbage, what a collection
        # may do.
        def between_blocks(figures, reason)
          doubt = unjudged(figures)
          return [doubt, reason].compact.join(" ") unless doubt && collect(figures)

          "#{doubt} A collection may free the blocks that keep these pages resident."
        end

        # The remedy for free memory between used blocks, and its cost. If garbage may be what keeps these pages
        # resident, the remedy first collects the garbage.
        def after_collection(figures, remedy, cost)
          return [remedy, cost] unless unjudged(figures) && collect(figures)

          ["#{collect(figures)}\n#{remedy}",
           "the first command takes a full GC, and shows whether garbage keeps these pages resident; the second " \
           "#{cost}"]
        end

        # "61 %"
        def percent(share) = format("%.0f %%", 100 * share)
      end
    end
  end
end

%w[growth rows settings glibc jemalloc collector ruby kernel known].each { |file| require_relative "rules/#{file}" }
