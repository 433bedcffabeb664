# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/browser"
require_relative "../support/puma_process"
require_relative "../support/services"
require "tmpdir"

# The tab of Sidekiq::Web beside a real Sidekiq, in a real browser: with the Sidekiq of the bundle and, in
# `rake battery:sidekiq_web`, with that of MEMSCOPE_SIDEKIQ_GEMS, for the Ruby of MEMSCOPE_SIDEKIQ_RUBY.
class SidekiqWebTest < MemscopeTest
  include Services

  APPLICATION = <<~'RUBY'
    require "memscope"
    KEPT = []
    class Keeper
      include Sidekiq::Job

      def perform = 200.times { |index| KEPT << "kept #{index} " * 1000 }
    end
    Sidekiq.configure_server do |config|
      config.server_middleware { |chain| chain.add Memscope::SidekiqTags }
      config.on(:startup) do
        Memscope.listen && Memscope::Workers.watch
        Memscope::ObjectProfile.start(budget: 1)
        20.times { Keeper.perform_async }
      end
    end
  RUBY
  OTHER = %w[MEMSCOPE_SIDEKIQ_RUBY MEMSCOPE_SIDEKIQ_GEMS].map { |name| ENV.fetch(name, nil) }.freeze

  def setup = skip_without_sidekiq

  # The command of a program of the bundle's gems, or of the other Ruby's, and its environment.
  def bundled(program, *arguments) = PumaProcess.command(program, *arguments)

  def other(program, *arguments)
    prefix, = OTHER
    built = File.join(ChildProcess::ROOT, "tmp", File.basename(prefix))
    ["#{prefix}/bin/ruby", "-W0", "-I#{built}", "-I#{ChildProcess::ROOT}/lib",
     "-e", "load Gem.bin_path(#{program.dump}, #{program.dump})", "--", *arguments]
  end

  def environment(directory, gems)
    settings = { "MEMSCOPE_SOCKET_DIRECTORY" => File.join(directory, "s"), "RACK_ENV" => "production",
                 "REDIS_URL" => "unix://#{directory}/redis.sock" }
    return PumaProcess.environment(nil, settings) unless gems

    ChildProcess.environment(nil, { **settings, "GEM_HOME" => gems, "GEM_PATH" => gems })
  end

  # @yieldparam url [String] of Sidekiq::Web
  # @yieldparam pid [Integer] of Sidekiq
  def served(way, gems = nil)
    rackup = File.join(__dir__, "../support/workloads/sidekiq_web.ru")
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "application.rb"), APPLICATION)
      with_redis(directory) do
        environment = environment(directory, gems)
        jobs = send(way, "sidekiq", "-r", "./application.rb", "-c", "2", "-t", "1")
        spawned(*jobs, environment, directory) do |pid, _log|
          web = send(way, "puma", "-b", "tcp://127.0.0.1:0", "-t", "1:4", rackup)
          Dir.mktmpdir do |logs|
            PumaProcess.run(web, environment, logs) { |server| yield "http://127.0.0.1:#{server.port}/sidekiq", pid }
          end
        end
      end
    end
  end

  def assert_tab(way, gems = nil)
    served(way, gems) do |url, pid|
      Browser.page do |page|
        page.go_to(url)
        page.click("a[href='/sidekiq/memory']")
        page.until_found("all jobs") { page.go_to("#{url}/memory") || page.text("body")[/^Keeper\s.*\b20\b/] }
        pictured(page, way)

        assert_match(/:#{pid}\b.*\d\d\.\d\s+Too early to tell/m, page.text("table"))
        assert_match(/Jobs of \S+:#{pid}$/, page.text("body"))
        assert_equal "Memory", page.text("a[href='/sidekiq/memory']")
        assert_empty page.evaluate("[...document.querySelectorAll('th:not([scope])')]")
        assert_empty page.complaints
      end
    end
  end

  # In both sizes, nothing is wider than the screen, beside the navigation of Sidekiq itself.
  def pictured(page, name)
    [[1280, 900], [390, 844]].each do |width, height|
      page.look(width: width, height: height)
      picture = ENV.fetch("MEMSCOPE_PICTURES", nil)
      page.screenshot(File.join(picture, "sidekiq-#{name}-#{width}.png")) if picture
      wide = page.evaluate("[...document.querySelectorAll('h1, h2, .table_container')]" \
                           ".filter((one) => one.getBoundingClientRect().right > #{width}).length")

      assert_equal 0, wide
    end
  end

  def test_the_tab_of_the_bundles_sidekiq = assert_tab(:bundled)

  def test_the_tab_of_another_sidekiq
    skip "rake battery:sidekiq_web installs another Sidekiq" unless OTHER.all?

    assert_tab(:other, OTHER.last)
  end
end
