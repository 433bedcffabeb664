# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope policy FILE`: what a policy decides on the readings in a file.
    class PolicyCommand < Command
      NOTES = <<~TEXT.freeze
        FILE has one reading of a server's workers per line, oldest first, as the
        server's policy writes them. Nothing is done: memscope prints what it would have
        done, when, to which worker and why; with --json, every decision, also those to
        do nothing.
        After a restart that would have been made, the readings go on as if nothing had
        happened, so the next decision may be about the same memory.

        rules: #{Policy.new.to_h.map { |name, value| "#{name}=#{value.inspect}" }.join(', ')
                       .scan(/\S.{0,72}(?=,? |\z),?/).join("\n  ")}
      TEXT
      FORMS = {
        process: { summary: "print when a policy would have purged or restarted workers",
                   example: "memscope policy --rules soft=0.7,interval_seconds=600 groups.jsonl", notes: NOTES,
                   options: [["--rules NAME=NUMBER,...", Array, "rules that differ from the defaults"], *TEXT] }
      }.freeze
      private_constant :NOTES, :FORMS

      private

      def operands = "FILE"

      def take(operands)
        super(operands, 1)
        @file = operands.first || refuse("no file given")
      end

      def perform
        policy = Policy.new(**rules)
        decisions = policy.replay(groups(policy.gap_seconds))
        return deliver_readings(decisions) if @given[:json]

        deliver do |display|
          done = decisions.reject(&:none?)
          [summary(decisions), *done.map { |decision| decision.to_s(**display.to_h) }].join("\n")
        end
      rescue ArgumentError => e
        usage_error(e.message.sub("Memscope::Policy.new: ", "--rules: "))
      end

      def rules
        @given.fetch(:rules, []).to_h do |rule|
          name, number = rule.split("=", 2)
          [name.to_sym, Integer(number.to_s, exception: false) || Float(number.to_s, exception: false) || number]
        end
      end

      # @param gap [Numeric] the longest time between two readings of a server, in seconds
      def groups(gap)
        lines = read_in_full(@file, "FILE").lines.reject { |line| line.strip.empty? }
        failure("#{@file}: has no reading") if lines.empty?
        groups = lines.map.with_index(1) do |line, number|
          Policy::Group.from_json(line)
        rescue ArgumentError => e
          failure("#{@file}:#{number}: #{e.message.sub(/\AMemscope::Policy::Group\.from_\w+: /, '')}")
        end
        check_of_one_server(groups, gap)
        groups
      end

      # A restarted server goes on with another pid. In a container, a later one may have an earlier pid again.
      def check_of_one_server(groups, gap)
        spans = groups.chunk_while { |one, later| server(one) == server(later) }.map { |some| some.values_at(0, -1) }
        mixed = spans.group_by { |first, _last| server(first) }.keep_if do |_server, own|
          own.each_cons(2).any? { |(_, last), (first, _)| first.seconds - last.seconds < gap }
        end.keys
        return if mixed.empty?

        failure("#{@file}: readings of several servers alternate (#{mixed.join(', ')}); give a file with those of one")
      end

      def server(group) = "pid #{group.pid} on #{group.host || 'an unknown host'}"

      def summary(decisions)
        actions = decisions.map(&:action).tally.except(:none)
        span = Verdict::Sentence.duration(decisions.last.at - decisions.first.at)
        did = actions.map { |action, times| "#{times} x #{action.name.tr('_', ' ')}" }.join(", ")
        text = "#{Report::Quantity.counted(decisions.size, 'readings')} over #{span}: " \
               "#{did.empty? ? 'nothing would have been done' : did}. The last: #{decisions.last.reason}"
        "#{Report::Page.new(unicode: true).wrapped(text, indent: '', hanging: 0)}\n"
      end
    end
  end
end
