# frozen_string_literal: true

require "json"
require "rails/railtie" if ENV["WITH_RAILS"]
require "memscope"

# Inherited by workers where the application is loaded before they are forked off.
INHERITED = "x" * (80 * 1_048_576)
PAGE = 4096

ACTIONS = {
  "/pid" => -> { Process.pid },
  "/workers" => -> { Memscope.workers.to_json },
  "/text" => -> { Memscope.workers.to_s },
  "/dirty" => -> { (64 * 1_048_576).step(by: -PAGE, to: PAGE) { |offset| INHERITED.setbyte(offset, 1) } && Process.pid },
  "/railtie" => -> { Memscope.const_defined?(:Railtie) },
  "/collect" => -> { 3.times { GC.start } && Process.pid },
  "/flood" => -> { 40.times { Memscope::Workers.place.step } },
  "/fork" => lambda do
    reader, writer = IO.pipe
    pid = fork { writer << Memscope.workers.to_json << "\n"; exit! }
    reader.gets.tap { Process.wait(pid) }
  end
}.freeze

run ->(env) { [200, { "content-type" => "text/plain" }, [ACTIONS.fetch(env.fetch("PATH_INFO")).call.to_s]] }
