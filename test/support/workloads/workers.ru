# frozen_string_literal: true

require "json"
require "rails/railtie" if ENV["WITH_RAILS"]
require "memscope"

# Inherited by workers where the application is loaded before they are forked off.
INHERITED = "x" * (80 * 1_048_576)
PAGE = 4096

HOARD = {} # rubocop:disable Style/MutableConstant
KEPT = [] # rubocop:disable Style/MutableConstant
MESSAGES = [] # rubocop:disable Style/MutableConstant

ACTIONS = {
  "/pid" => -> { Process.pid },
  "/workers" => -> { Memscope.workers.to_json },
  "/history" => -> { Memscope.history.to_json },
  "/text" => -> { Memscope.workers.to_s },
  "/dirty" => lambda do
    (64 * 1_048_576 / PAGE).times { |page| INHERITED.setbyte(page * PAGE, 1) }
    Process.pid
  end,
  "/leak" => -> { KEPT << Object.new },
  "/keep" => lambda do
    KEPT.concat(Array.new(500) { "k" * 10_000 })
    Process.pid
  end,
  # The three faults of memory: a cache that only grows, a C extension that leaks, and a peak that has become garbage.
  "/hoard" => lambda do
    HOARD[HOARD.size] = Array.new(2_000) { |number| "kept #{number} " * 40 }
    Process.pid
  end,
  "/lint" => lambda do
    require "ripper"
    20_000.times { Ripper.sexp("class Foo\n def bar(\n") }
    Process.pid
  end,
  "/peak" => lambda do
    GC.disable if ENV["WITHOUT_GC"]
    Array.new(4) { Thread.new { Array.new(500_000) { |number| "row #{number} " * 10 } && nil } }.each(&:join)
    Process.pid
  end,
  # Messages that google-protobuf has joined: asking one for its size visits all of them.
  "/messages" => lambda do
    require "google/protobuf/struct_pb"
    MESSAGES.replace([Google::Protobuf::Struct.new])
    2_000.times { |number| MESSAGES << (MESSAGES.first.fields["f#{number}"] = Google::Protobuf::Value.new) }
    Process.pid
  end,
  "/loaded" => -> { %i[Doctor Lint Purge Profile].none? { |name| Memscope.autoload?(name) } },
  "/railtie" => -> { Memscope.const_defined?(:Railtie) },
  "/churn" => lambda do
    3.times do
      Array.new(100_000) { "x" * 60 }
      GC.start
    end
    Process.pid
  end,
  "/flood" => -> { 40.times { Memscope::Workers.current.step } },
  "/fork" => lambda do
    reader, writer = IO.pipe
    pid = fork do
      writer.puts(Memscope.workers.to_json)
      exit!
    end
    reader.gets.tap { Process.wait(pid) }
  end,
  # A child that collects its parent's objects, and profiles its own.
  "/fork_and_profile" => lambda do
    IO.popen("-") do |child|
      break Integer(child.read) if child

      kept = []
      profile = Memscope.object_profile(budget: 1) { 2_000.times { kept << +"kept" } && GC.start }
      $stdout.syswrite(profile.pid)
    ensure
      exit! unless child
    end
  end
}.freeze

map("/memscope") do
  run(lambda do |env|
    require "memscope/web"
    Memscope::Web.call(env)
  end)
end

run ->(env) { [200, { "content-type" => "text/plain" }, [ACTIONS.fetch(env.fetch("PATH_INFO")).call.to_s]] }
