# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # The growth between two profiles of one process, stack by stack.
    #
    # For malloc's memory, errors are added in quadrature, as if the estimates were independent. That is an upper bound:
    # a block that is live in both profiles is the same sample in both, and cancels out. Unchanged stacks and their
    # errors are left out. For objects, the share of each window is known in both profiles, so errors are those of the
    # growth.
    # @api private
    module Growth
      # The fields that must be equal in both profiles for the profiles' numbers to be comparable.
      SAME = %i[pid backend rate_bytes since].freeze
      # The fields that are simply subtracted.
      SUBTRACTED = %i[samples live_bytes live_objects own_bytes allocator_grown_bytes rss_grown_bytes].freeze
      # The fields that only a single profile has.
      OF_ONE = %i[generations epoch unjudged_generation allocator_live_bytes coverage holders].freeze

      class << self
        # @return [Hash{Symbol => Object}] the values in which the growth differs from the later profile
        # @raise [ArgumentError] unless both have the same process, rate and backend, and neither is a growth
        def values(earlier, later)
          SAME.each { |field| check_same(field, earlier.public_send(field), later.public_send(field)) }
          reasons = earlier.reasons.merge(later.reasons)
          reasons[:started_at] = Reasons.sentence(:profile_restarted) unless earlier.started_at == later.started_at
          { since: (earlier.at.to_r * 1000).to_i, earlier_live_bytes: earlier.live_bytes,
            **OF_ONE.to_h { |field| [field, nil] },
            **SUBTRACTED.to_h { |field| [field, change(earlier.public_send(field), later.public_send(field))] },
            **matched(earlier, later), reasons: reasons.freeze, cost: Cost.capture(Cost.of(:T0)) }
        end

        # The bodies of a Diff's rows, the greatest growth first.
        def rows(earlier, growth, grouping)
          before = earlier.by(grouping).to_h { |entry| [place(entry), entry.live_bytes] }
          growth.by(grouping).reject { |entry| entry.live_bytes.zero? }.map do |entry|
            bytes = before.fetch(place(entry), 0)
            Diff.row(entry.to_s, before: bytes, after: bytes + entry.live_bytes, error: entry.error_bytes)
          end
        end

        private

        def check_same(field, earlier, later)
          return if earlier == later

          given = "#{Field.excerpt(earlier)} in the earlier profile"
          raise Invalid.new(field, given, "#{later.inspect}, as in the later", call: "Memscope::Profile#-")
        end

        def place(entry) = [entry.path, entry.lineno || entry.name]

        def change(before, after) = before && after && (after - before)

        # Matches the stacks of both profiles. The same frame can have different indexes in them, and the same line
        # different libraries, if a gem or Bundler was loaded in between.
        #
        # Objects' generations merge as a profile gets older, and a generation always begins at the first epoch whose
        # objects are not judged yet. Keeps the generations that begin at the same epoch in both profiles, or after the
        # earlier profile.
        def matched(earlier, later)
          frames = (later.frames + earlier.frames).uniq { |frame| key(frame) }
          ids = frames.each_with_index.to_h { |frame, index| [key(frame), index] }
          generations = later.generations if earlier.generations
          generations = generations&.select { |first| first > earlier.epoch || earlier.generations.include?(first) }
          pairs = signed(later, 1, ids, generations) + signed(earlier, -1, ids, generations)
          grown = pairs.group_by(&:first).filter_map { |identity, group| growth(identity, group.map(&:last)) }
          { frames: frames.freeze, stacks: grown.freeze }
        end

        def signed(profile, sign, ids, generations)
          indexes = profile.frames.map { |frame| ids.fetch(key(frame)) }
          profile.stacks.map { |stack| [identity(stack, indexes, generations), [stack, sign]] }
        end

        def key(frame) = [frame.kind, frame.name, frame.path, frame.lineno, (frame.library if frame.kind == :native)]

        def identity(stack, indexes, generations)
          generation = stack.generation
          generation = generations.reverse_each.find { |first| first <= generation } if generations
          { frames: indexes.values_at(*stack.frames).freeze, tag: stack.tag, thread: stack.thread,
            class_name: stack.class_name, generation: generation }
        end

        # The growth of one stack; nil if nothing changed.
        def growth(identity, signed)
          numbers = Stack::GROWING.to_h do |name|
            [name, Quantity.total(signed.map { |stack, sign| stack.public_send(name)&.*(sign) })]
          end
          return if numbers.values.compact.all?(&:zero?)

          Stack.capture({ **identity, **numbers, **Shares.growth(signed),
                          error_bytes: Integer.sqrt(signed.sum { |stack, _sign| stack.error_bytes**2 }) })
        end
      end
    end
  end
end
