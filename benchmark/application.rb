# frozen_string_literal: true

# What memscope costs a Rails application in which all of it is loaded, mounted, listening and idle: instructions per
# request under callgrind, and CPU time in pairs of processes that take turns. As a control, the same is done with pairs
# in which neither process has memscope.

require_relative "floor/counted_server"

REQUESTS = [File.expand_path("floor/requests.rb", __dir__)].freeze
LOADED = { "MEMSCOPE" => "1" }.freeze
AGAIN = { "AGAIN" => "1" }.freeze
STARTS = 20
PAIRS = 5
BATCH = 20
COUNTED = 200

COMPARED = { "speed with memscope ÷ without" => [Side.new(LOADED), Side.new({})],
             "speed without ÷ without (the same twice)" => [Side.new(AGAIN), Side.new({})] }.freeze
compare(REQUESTS, COMPARED, starts: STARTS, batch: BATCH, pairs: PAIRS).each do |what, (ratio, least, most)|
  say(what, ratio, "95 % confidence: #{least.round(4)} to #{most.round(4)}")
end

if valgrind?
  without, with = [{}, LOADED].map { |env| instructions(REQUESTS, Side.new(env), count: COUNTED) }
  say("instructions without ÷ with memscope", without / with, "goal ≥ 0.995; #{without.round} a request without")
else
  puts "valgrind is not installed: instructions are not counted"
end
