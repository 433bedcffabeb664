# frozen_string_literal: true

# Sixteen threads make a million strings of mixed sizes, or as many as STRINGS says. One in fifty is kept, the rest is
# garbage. The kept ones are spread over the whole heap and fragment it: a busy server after a large import looks like
# this.

count = Integer(ENV.fetch("STRINGS", "1000000")) / 16
KEPT = Array.new(16) do |seed|
  Thread.new do
    random = Random.new(seed)
    strings = Array.new(count) { "x" * random.rand(24..1_600) }
    strings.select.with_index { |_, index| (index % 50).zero? }
  end
end.map(&:value)

GC.start
