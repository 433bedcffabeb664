# frozen_string_literal: true

# What memscope costs Puma's master: two clusters with two preloaded workers each serve the same Rails application for
# SECONDS, one with the plugin and the pages, the other without memscope. Both are asked for the same requests; the one
# with memscope is scraped, and its pages are opened, SPEED times as often as every 15 and 60 seconds.
#
#   SECONDS=900 SPEED=4 bundle exec ruby -Ilib benchmark/master.rb

require "net/http"
require "tmpdir"

SECONDS = Integer(ENV.fetch("SECONDS", "900"))
SPEED = Float(ENV.fetch("SPEED", "4"))
PAGES = %w[/ /?findings=1 /history /objects /profile /allocator /ledger.json /workers.json].freeze
PASSWORD = "Basic #{['a:long-password'].pack('m0')}".freeze
LIBRARY = File.expand_path("../lib", __dir__)

CONFIG = <<~RUBY
  workers 2
  preload_app!
  environment "production"
  bind "tcp://127.0.0.1:0"
  plugin :memscope if ENV["MEMSCOPE"]
RUBY

APPLICATION = <<~'RUBY'
  require "logger"
  require "rails"
  require "action_controller/railtie"
  require "action_mailer/railtie"
  require "active_job/railtie"
  require "action_cable/engine"
  require "memscope" if ENV["MEMSCOPE"]

  class App < Rails::Application
    config.eager_load = true
    config.secret_key_base = "x" * 64
    config.logger = Logger.new(File::NULL)
  end
  OrdersController = Class.new(ActionController::Base) do
    def index = render(json: Array.new(400) { |id| { id: id, lines: Array.new(9) { |line| "line #{line} of #{id}" } } })
  end
  # As in an application that has grown: much that lives, among what is garbage by now.
  KEPT = Array.new(800_000) { |number| ["order #{number}", number] }.select.with_index { |_order, at| (at % 3).positive? }
  App.initialize!
  Memscope.configure { |c| c.username, c.password = "a", "long-password" } if ENV["MEMSCOPE"]
  App.routes.draw do
    get "/orders", to: "orders#index"
    mount(Memscope::Web => "/memscope") if ENV["MEMSCOPE"]
  end
  run App
RUBY

# One cluster, and its master's memory and CPU time.
class Master
  def initialize(environment)
    @directory = Dir.mktmpdir
    File.write(File.join(@directory, "puma.rb"), CONFIG)
    File.write(File.join(@directory, "config.ru"), APPLICATION)
    @log = File.join(@directory, "log.txt")
    @pid = Process.spawn(environment, RbConfig.ruby, "-W0", "-I#{LIBRARY}", "-rbundler/setup", "-e",
                         'load Gem.bin_path("puma", "puma")', "--", "-C", "puma.rb",
                         chdir: @directory, %i[out err] => @log)
    sleep 0.2 until (@port = File.read(@log)[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1])
  end

  def get(path)
    Net::HTTP.start("127.0.0.1", @port, read_timeout: 60) { |http| http.get(path, { "Authorization" => PASSWORD }) }
  rescue SystemCallError, Net::ReadTimeout
    sleep 0.1 # it boots, or is slow
  end

  # USS in MiB; the median of some seconds, since a fork of the master shares its memory for as long as it lives.
  def uss
    Array.new(9) do
      sleep 0.5
      File.read("/proc/#{@pid}/smaps_rollup").scan(/^Private_\w+: +(\d+)/).flatten.sum(&:to_i) / 1024.0
    end.sort[4]
  end

  # Seconds of CPU time, by the scheduler's own clock, of all threads.
  def cpu = Dir["/proc/#{@pid}/task/*/schedstat"].sum { |path| File.read(path).to_i } / 1e9

  def stop
    Process.kill(:TERM, @pid)
    Process.wait(@pid)
  end
end

# Asks for one path after the other, for SECONDS.
def visit(master, paths, every)
  Thread.new do
    stop = Time.now + SECONDS
    paths.cycle do |path|
      break if Time.now > stop

      master.get(path)
      sleep(every)
    end
  end
end

without, with = [{ "MEMSCOPE" => nil }, { "MEMSCOPE" => "1" }].map { |environment| Master.new(environment) }
begin
  [without, with].each { |master| master.get("/orders") }
  before = [without, with].map(&:cpu)
  visits = [without, with].map { |master| visit(master, ["/orders"], 0.2) }
  visits << visit(with, ["/memscope/metrics"], 15 / SPEED)
  visits << visit(with, PAGES.map { |page| "/memscope#{page}" }, 60 / SPEED / PAGES.size)
  visits.each(&:join)
  least, most = [without, with].map(&:uss)
  used = [without, with].map(&:cpu).zip(before).map { |after, start| (after - start) / SECONDS * 100 }
  puts format("the master's USS: %.1f MiB without, %.1f MiB with memscope: %+.1f MiB (goal: at most 8)", least, most,
              most - least)
  puts format("its CPU: %.3f %% of a core without, %.3f %% with memscope (goal: at most 0.1)", *used)
ensure
  [without, with].each(&:stop)
end
