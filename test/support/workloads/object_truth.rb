# frozen_string_literal: true

# Compares profiles of objects with the truth, for lines that keep known numbers of objects. Prints the budget and the
# watched allocations of each session, and for each line the true number, the estimate, its error and its samples.
# ENV["SEED"] selects the objects that are kept. The sampled objects cannot be selected.

require "json"
require "memscope"

PROFILE = Memscope::ObjectProfile
SESSIONS = 2
BUDGETS = [1, 0.2, 0.05].freeze
# Objects per round. The rounds of a PERIOD allocate as many objects as a window of samples has.
ROUND = 20
PERIOD = 20_000 / ROUND
PERIODS = 30

class Item
  def initialize(number) = @number = number
end

# Each makes one object. KEPT has the number of objects that are kept of a thousand.
def rare(number) = [number]
def some(number) = Item.new(number)
def many(number) = { number => number }
def most(_number) = +"text"
def none(number) = [number, number]
def burst(number) = [number, nil]
def early(number) = Item.new(number)
def late(number) = [number]
def halved(_number) = Object.new
KEPT = { rare: 60, some: 100, many: 300, most: 900, burst: 500, early: 200, late: 200, halved: 200 }.freeze

def keep(held, name, object, random) = (held[name] << object if random.rand(1000) < KEPT.fetch(name))

# One round, of ROUND objects.
def round(held, number, random)
  keep(held, :rare, rare(number), random)
  keep(held, :some, some(number), random)
  keep(held, :many, many(number), random)
  keep(held, :most, most(number), random)
  keep(held, :halved, halved(number), random)
  number % PERIOD < PERIOD / 4 ? keep(held, :early, early(number), random) : keep(held, :late, late(number), random)
  bursts = number / PERIOD % 10 == 3
  keep(held, :burst, burst(number), random) if bursts
  (bursts ? ROUND - 7 : ROUND - 6).times { none(number) }
end

def full_gc = 3.times { GC.start }

def estimates(profile, names)
  entries = profile.by(:method).to_h { |entry| [entry.name[/\w*\z/].to_sym, entry] }
  names.to_h { |name| [name, entries[name]&.then { |one| [one.live_objects, one.error_objects, one.samples] }] }
end

def session(random, budget)
  held = KEPT.to_h { |name, _| [name, []] }
  PROFILE.start(budget: budget)
  (PERIODS * PERIOD).times { |number| round(held, number, random) }
  full_gc
  whole = estimates(PROFILE.snapshot, KEPT.keys)
  truth = held.transform_values(&:size)
  held[:halved].select!.with_index { |_object, index| index.even? }
  full_gc
  profile = PROFILE.stop
  whole[:half] = estimates(profile, [:halved])[:halved]
  truth[:half] = held[:halved].size
  { budget: budget, windows: profile.windows, watched: profile.overhead.watched_share,
    lines: truth.to_h { |name, kept| [name, [kept, *whole[name]]] } }
end

random = Random.new(Integer(ENV.fetch("SEED")))
puts JSON.generate(Array.new(SESSIONS) { session(random, BUDGETS.sample(random: random)) })
