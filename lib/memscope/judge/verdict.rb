# frozen_string_literal: true

module Memscope
  Record.declare(__FILE__)

  # A judgement on the growth of this process's memory, by its history: the layer, the rate, the confidence, the time
  # until the limit, and the next step.
  #
  #   verdict = Memscope.verdict
  #   verdict.kind             # => :leak
  #   verdict.layer            # => :native
  #   verdict.bytes_per_hour   # => 22020096
  #   puts verdict.sentence    # one to paste into a ticket
  #
  # The thread of Memscope::History judges every five minutes. Growth is a leak only if nothing else explains it: no
  # warm-up, no cache that fills, no step, no daily or weekly pattern of load. A leak is called when two judgements in a
  # row find it and the growth has lasted. It is cleared when three judgements in a row do not find it.
  #
  # The extension judges (engine/trend). This is its answer. All surfaces cite it, in the same words.
  #
  # In JSON, `kind` has the key `verdict`, since each reading already has a key `kind`.
  class Verdict < Reading
    # :too_early for a verdict; :steady, no growth; :filling, growth that levels off, as of a cache; :step, a sudden
    # rise that stayed; :leak, unbounded growth.
    KINDS = declared(:verdict).one_of

    require_relative "verdict/sentence"

    # A judgement without earlier judgements goes this many seconds back, and judges each epoch since then in turn. That
    # is longer than growth must have lasted before it is called a leak.
    REPLAYED = 3 * 3600
    # Seconds.
    FIRST_HOUR = 3600
    # Bytes. Growth by more is told, also while it is too early to judge.
    GROWN = 10 * 1_048_576
    # With fewer requests, most of the growth may have another cause.
    ENOUGH_REQUESTS = 100
    # The fields and the evidence that a verdict of each kind has; :known, if there was anything to judge; :limited, if
    # the limit will be reached.
    KNOWN = { steady: %i[detectable_bytes_per_hour rss_bytes], filling: [:ends_near_bytes], step: %i[since step_bytes],
              leak: %i[layer bytes_per_hour bytes_per_hour_low bytes_per_hour_high lasting_seconds],
              known: %i[epoch_seconds span_seconds p_value], limited: [:limit_bytes] }.freeze
    private_constant :REPLAYED, :FIRST_HOUR, :ENOUGH_REQUESTS, :KNOWN

    class << self
      # @api private
      # @return [Verdict] checked: it has the numbers of its sentence
      def load(hash, where)
        super.tap do |verdict|
          needed = KNOWN.values_at(verdict.kind, *(:known if verdict.known?), *(:limited if verdict.eta_seconds))
          needed = needed.flatten.compact - (verdict.unshared? ? [:ends_near_bytes] : [])
          unknown = needed.find { |name| verdict.to_h.merge(verdict.evidence)[name].nil? }
          Loader.refuse([where, unknown], nil, "a value, as the verdict is #{verdict.kind}") if unknown
        end
      end

      # @api private
      def read(sampler, now: false)
        check_switch(:now, now)
        (Runtime.current.verdict unless now) || of(sampler)
      end

      # Judges the history, continuing from the earlier judgements, and keeps the verdict. Tells of growth that began,
      # moved to another layer or ended.
      # @api private
      def judge(sampler)
        runtime = Runtime.current
        earlier = runtime.verdict
        verdict = runtime.verdict = of(sampler, replayed: nil)
        return verdict if verdict.alarm == earlier&.alarm

        Notifications.tell(:verdict) { { **verdict.to_h, sentence: verdict.sentence, previous: earlier&.kind } }
        verdict
      end

      # Updates the growth of a :too_early verdict between two judgements in the first hour, which has no other verdict.
      # @api private
      # @return [void]
      def update(sampler)
        kept = Runtime.current.verdict
        return unless kept&.kind == :too_early && kept.evidence.fetch(:span_seconds, 0) < FIRST_HOUR

        verdict = of(sampler, replayed: 0)
        Runtime.current.verdict = verdict if verdict.kind == :too_early
      end

      # @api private
      # @param replayed [Integer, nil] judge the epochs of the last N seconds in turn, ignoring earlier judgements;
      #   nil continues from this process's last judgement
      # @param envelope [Hash, nil] of another process, if the history is about that
      def of(sampler, replayed: REPLAYED, cgroup: Cgroup.read, envelope: nil)
        room = { limit_bytes: cgroup&.limit_bytes, working_set_bytes: cgroup&.working_set_bytes }
        body = Native.judge(sampler.spacings, *room.values.map(&:to_i), sampler.now, replayed)
        growth = body[:growth]&.sort_by&.with_index { |(_row, bytes), index| [-bytes, index] }&.to_h
        body = { **body, growth: growth, evidence: { **body[:evidence], **room }.compact,
                         reasons: reasons(body, sampler.reasons) }
        capture({ **body, remedy: remedy(body, envelope ? envelope[:pid] : Process.pid) }, envelope)
      end

      private

      # Why the process is not sampled, or why layers are unknown, if there is a verdict.
      def reasons(body, sampling)
        return body[:reasons] if body[:reasons].keys.intersect?(%i[verdict extension])
        return sampling.slice(:running) if body[:evidence][:points].zero? && body[:growth].nil?

        body[:verdict] == :too_early ? {} : body[:reasons].transform_values { |why| sampling[why[1].to_sym] || why }
      end

      def remedy(body, pid)
        layer = body[:layer]
        if body[:verdict] == :too_early
          layer = (:compare if body[:evidence][:grown_bytes].to_i > GROWN)
          layer = :start if body[:reasons].key?(:running)
        end
        Sentence.remedy(layer, pid) unless body[:verdict] == :steady
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
    # @return [Array(Symbol, Symbol), nil] kind and layer of growth that is not expected to end, or came at once
    def alarm = ([kind, layer] if %i[step leak].include?(kind))

    # @api private
    # @return [Boolean] whether RSS does not grow, but pages that were shared with the parent have become private
    def unshared? = kind == :filling && layer == :shared && !evidence[:ends_near_bytes]

    # @api private
    def layer_text = Sentence.layer(layer)

    # @return [String] one sentence with the verdict's numbers, in ASCII
    def sentence = Sentence.of(self)

    # @return [String] the kind in a word or two, for tables
    def word = kind.name.tr("_", " ")

    # @api private
    # @return [Boolean] whether there was a history to judge
    def known? = !reasons.keys.intersect?(%i[running verdict extension])
  end
end
