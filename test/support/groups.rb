# frozen_string_literal: true

# Readings of a group of workers, as a policy takes them: one every 30 seconds, of four warm workers in a container of
# 2,000 MiB. Amounts are in MiB.
module Groups
  MEBIBYTE = 1_048_576
  EVERY = 30
  # When the newest one was taken, in seconds: the workers have run for 10 hours.
  NOW = 40_000.0
  LIMIT = 2000
  NAMES = { private: :private_bytes, purge: :purge_bytes, leak: :leak_bytes_per_hour }.freeze
  private_constant :NAMES

  module_function

  # @param working_set [Numeric, Array<Numeric>] of each reading, oldest first; one number: of all 20 readings
  # @param workers [Hash{Integer => Hash}] values that replace a worker's, by its index; nil: there is no such worker
  # @param count [Integer] number of workers
  # @param every [Numeric] seconds between two readings
  # @param group [Hash] values that replace those of each Group
  # @return [Array<Memscope::Policy::Group>]
  def take(working_set, workers: {}, count: 4, every: EVERY, **group)
    sets = working_set.is_a?(Array) ? working_set : [working_set] * 20
    sets.each_with_index.map do |megabytes, position|
      one(megabytes, NOW - (every * (sets.size - 1 - position)), workers, count, group)
    end
  end

  # An outcome from `ago` seconds before NOW.
  def outcome(action, index, ago, expected: 100, returned: nil, pid: 90 + index, **others)
    { action: action, worker: member(index, { pid: pid }), executed: true, seconds: NOW - ago, failed_boots: 0,
      expected_bytes: bytes(expected), returned_bytes: bytes(returned), booted_seconds: returned && (NOW - ago + 30),
      **others }
  end

  def bytes(megabytes) = megabytes && (megabytes * MEBIBYTE).round

  def one(working_set, seconds, workers, count, special)
    members = Array.new(count) { |index| member(index, workers.fetch(index, {})) }.compact
    Memscope::Policy::Group.capture({ seconds: seconds, host: "web-1", limit_bytes: bytes(LIMIT),
                                      working_set_bytes: bytes(working_set), supervised: true, workers: count,
                                      members: members, outcomes: [], **special })
  end

  def member(index, special)
    return unless special

    sizes = special.slice(*NAMES.keys).to_h { |name, megabytes| [NAMES.fetch(name), bytes(megabytes)] }
    { index: index, pid: 100 + index, started_seconds: NOW - 36_000, booted: true, private_bytes: bytes(200),
      **sizes, **special.except(*NAMES.keys) }
  end
end
