# frozen_string_literal: true

require_relative "cgroup"
require_relative "reading"
Memscope::Loading.unit :History

module Memscope
  # Whether the memory of this process grows, by its history: in which layer, how fast, how sure that is, how long until
  # the limit, and what to do next.
  #
  #   verdict = Memscope.verdict
  #   verdict.kind             # => :leak
  #   verdict.layer            # => :native
  #   verdict.bytes_per_hour   # => 22020096
  #   puts verdict.sentence    # one to paste into a ticket
  #
  # The thread of Memscope::History judges every five minutes. Growth is a leak only if nothing else explains it: no
  # warm-up, no cache that fills, no step, no daily or weekly pattern of load. A leak is called when two judgements in a
  # row find it and the growth has lasted; it is cleared when three judgements in a row do not find it.
  #
  # In JSON, `kind` has the key `verdict`, since each reading already has a key `kind`.
  class Verdict < Reading
    # :insufficient, too early to tell; :steady, no growth; :plateau, growth that levels off, as of a cache that fills;
    # :step, a sudden rise that stayed; :leak, unbounded growth.
    KINDS = %i[insufficient steady plateau step leak].freeze

    require_relative "verdict/floors"
    require_relative "verdict/layers"
    require_relative "verdict/sentence"

    # @return [Symbol] one of KINDS
    field :verdict, :symbol, null: false, one_of: KINDS
    # @return [Symbol, nil] which layer most of the growth is in: :objects (Ruby's, with what they hold through malloc),
    #   :native (malloc's memory in use that no object holds), :fragmentation (free memory in malloc and in Ruby's
    #   heap), :threads (stacks), :code, :copy_on_write (pages shared with the parent that became private) or
    #   :unattributed; nil if nothing grows
    field :layer, :symbol, one_of: Layers::NAMES
    # @return [Hash{Symbol => Float}] the share of each layer in the growth; they sum to 1, or all are 0
    field :shares, :numbers, null: false
    # @return [Integer, nil] growth of RSS without steps, warm-up and load; growth of the layer if RSS does not grow;
    #   nil if insufficient
    field :bytes_per_hour, :signed_bytes
    # @return [Integer, nil] lower bound of its 95 % interval
    field :bytes_per_hour_low, :signed_bytes
    # @return [Integer, nil] upper bound of its 95 % interval
    field :bytes_per_hour_high, :signed_bytes
    # @return [Time, nil] when the growth or the step began
    field :since, :time
    # @return [Integer, nil] seconds until a leak reaches the container's limit, if nothing else changes; nil without a
    #   leak or a limit
    field :eta_seconds, :count
    # @return [Integer, nil] lower bound of its 95 % interval
    field :eta_seconds_low, :count
    # @return [Integer, nil] upper bound of its 95 % interval; nil if the limit may never be reached
    field :eta_seconds_high, :count
    together :eta_seconds, :eta_seconds_low
    # @return [Integer, nil] seconds until it can be told whether memory grows; nil if it can be told now, or if
    #   that takes more than a month
    field :needs_seconds, :count
    # @return [Integer, nil] the smallest growth that can be told from no growth now
    field :detectable_bytes_per_hour, :bytes
    # @return [Float] confidence that the kind is right, 0 to 1; 0 if insufficient
    field :confidence, :number, null: false
    # @return [Hash{Symbol => Numeric}] the numbers that the verdict rests on: `points` of `epoch_seconds` over
    #   `span_seconds`, `rss_bytes`, `noise_bytes` (a point's standard deviation), `p_value`, `step_bytes`,
    #   `ends_near_bytes`, `limit_bytes`, `working_set_bytes`; since the growth began, `lasting_seconds` and the
    #   `requests` of Puma
    field :evidence, :numbers, null: false
    # @return [String, nil] what to do next: commands to paste, or a sentence
    field :remedy, :text

    # A judgement without earlier judgements goes this many seconds back, and judges each epoch since then in turn. That
    # is longer than growth must have lasted before it is called a leak.
    REPLAYED = 3 * 3600
    # Fields that the extension returns as Floats, to be rounded.
    WHOLE = %i[bytes_per_hour bytes_per_hour_low bytes_per_hour_high eta_seconds eta_seconds_low eta_seconds_high
               needs_seconds detectable_bytes_per_hour].freeze
    # With fewer requests, most of the growth may have another cause.
    ENOUGH_REQUESTS = 100
    # Replaces the extension's judgement if it could not judge.
    UNJUDGED = { kind: :insufficient, shares: Layers::NAMES.to_h { |name| [name, 0.0] }.freeze, confidence: 0.0 }.freeze
    # The fields and the evidence that a verdict of each kind has; :known, if there was anything to judge; :limited, if
    # the limit will be reached.
    KNOWN = { steady: %i[detectable_bytes_per_hour rss_bytes], plateau: [:ends_near_bytes], step: %i[since step_bytes],
              leak: %i[layer bytes_per_hour bytes_per_hour_low bytes_per_hour_high lasting_seconds],
              known: %i[epoch_seconds span_seconds p_value], limited: [:limit_bytes] }.freeze
    private_constant :REPLAYED, :WHOLE, :ENOUGH_REQUESTS, :UNJUDGED, :KNOWN

    class << self
      # @api private
      # @return [Verdict] checked: it knows what its sentence says
      def load(hash, where)
        super.tap do |verdict|
          needed = KNOWN.values_at(verdict.kind, *(:known if verdict.known?), *(:limited if verdict.eta_seconds))
          needed = needed.flatten.compact - (verdict.layer == :copy_on_write ? [:ends_near_bytes] : [])
          unknown = needed.find { |name| verdict.to_h.merge(verdict.evidence)[name].nil? }
          Loader.refuse([where, unknown], nil, "a value, as the verdict is #{verdict.kind}") if unknown
        end
      end

      # (see Memscope.verdict)
      def read(now: false)
        check_switch(:now, now)
        (latest unless now) || of(History.read, cgroup: Cgroup.read)
      end

      # @api private
      # @return [Verdict, nil] the last verdict on this process's history
      def latest = (@latest if @latest&.pid == Process.pid)

      # Judges the history, continuing from the earlier judgements, and keeps the verdict.
      #
      # @api private
      # @return [Verdict]
      def judge = @latest = of(History.read, cgroup: Cgroup.read, replayed: nil)

      # @api private
      # @param history [History]
      # @param cgroup [Cgroup, nil] nil: no limit
      # @param replayed [Integer, nil] judge the epochs of the last N seconds in turn, ignoring earlier judgements;
      #   nil continues from this process's last judgement
      # @return [Verdict]
      def of(history, cgroup: nil, replayed: REPLAYED)
        since = Cost.now
        floors = Floors.new(history)
        layers = Layers.new(floors)
        room = { limit_bytes: cgroup&.limit_bytes, working_set_bytes: cgroup&.working_set_bytes }
        judged = judgement(floors, layers.series, room, replayed)
        judged = { **judged, needs_seconds: floors.until_complete(judged[:needs_seconds], history.at) }
        requests = judged[:since] && history.rise(:requests, judged[:since])
        capture({ **body(judged), evidence: { **evidence(judged, floors), requests: requests, **room }.compact,
                                  remedy: remedy(judged, history), reasons: reasons(judged, history, layers),
                                  cost: Cost.of(:T1, Cost.now - since) }, history.envelope)
      end

      private

      # Judges each epoch of the last `replayed` seconds; with nil, only the last epoch. Returns the last judgement.
      def judgement(floors, series, room, replayed)
        epochs = replayed && [floors.seconds.count { |at| at >= floors.seconds.last - replayed }, 1].max
        judged = Native.judge(floors.seconds, floors.rss, series, room.values.map(&:to_i), epochs)
        judged.is_a?(Hash) ? judged : { **UNJUDGED, why: judged }
      end

      def body(judged)
        since = judged[:kind] == :step ? judged[:step_at] : judged[:since]
        { verdict: judged[:kind], layer: judged[:layer], since: since && (since * 1000).round,
          shares: judged[:shares].transform_values { |share| share.round(4) },
          confidence: judged[:confidence].round(4), **judged.slice(*WHOLE).transform_values { |number| number&.round } }
      end

      def evidence(judged, floors)
        bytes = judged.slice(:noise_bytes, :step_bytes, :ends_near_bytes).transform_values { |number| number&.round }
        { points: floors.seconds.size, epoch_seconds: floors.epoch_seconds, span_seconds: floors.span_seconds,
          lasting_seconds: judged[:since] && (floors.seconds.last + floors.epoch_seconds - judged[:since]).round,
          rss_bytes: floors.rss.last, p_value: judged[:p_value]&.round(6), **bytes }
      end

      def reasons(judged, history, layers)
        return { verdict: judged[:why] } if judged[:why]

        return history.reasons.slice(:running) if history.series.empty?

        judged[:kind] == :insufficient ? {} : layers.reasons
      end

      def remedy(judged, history)
        return (START if history.series.empty?) if judged[:kind] == :insufficient

        REMEDIES[judged[:layer]]&.gsub("PID", history.pid.to_s) unless judged[:kind] == :steady
      end
    end

    # @return [Symbol] one of KINDS
    def kind = verdict

    # @return [Integer, nil] bytes that each request leaks; nil without a leak, or with few or unknown requests
    def bytes_per_request
      requests, seconds = evidence.values_at(:requests, :lasting_seconds)
      return unless leak? && requests.to_i >= ENOUGH_REQUESTS

      (bytes_per_hour * seconds / 3600.0 / requests).round
    end

    # @return [Boolean] whether memory grows without bound
    def leak? = kind == :leak

    # @api private
    # @return [String, nil] the layer, for people
    def layer_text = Sentence::LAYERS[layer]

    # @return [String] one sentence with the verdict's numbers, in ASCII
    def sentence = Sentence.of(self)

    # @return [String] the kind in a word or two, for tables
    def word = kind == :insufficient ? "too early" : kind.name

    # @api private
    # @return [Boolean] whether there was a history to judge
    def known? = !reasons.key?(:running) && !reasons.key?(:verdict)
  end
end
