# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/services"
require "tmpdir"

# The setup that docs/sidekiq.md gives, in a real Sidekiq with a real Redis.
class SidekiqTest < MemscopeTest
  include Services

  parallelize_me!

  SETUP = File.read(File.join(ChildProcess::ROOT, "docs/sidekiq.md"))[/^```ruby\n(.*?)^```/m, 1].freeze

  APPLICATION = <<~RUBY.freeze
    require "json"
    require "memscope"
    #{SETUP}
    class Reading
      include Sidekiq::Job

      def perform
        sleep 0.02 until Memscope.workers.first.samples > 1 && Memscope.history.series.include?(:malloc)
        File.write("reading.part", Memscope.workers.to_json)
        File.rename("reading.part", "reading")
      end
    end
    Sidekiq.configure_server { |config| config.on(:startup) { Reading.perform_async } }
  RUBY

  TAGGED = <<~RUBY
    require "json"
    require "memscope"
    KEPT = []
    class Keeper
      include Sidekiq::Job

      def perform = 100.times { KEPT << ("k" * 10_000) }
    end
    class Teller
      include Sidekiq::Job

      def perform
        sleep 0.02 until KEPT.size == 100
        tags = Memscope::MallocProfile.stop.by(:tag).to_h { |entry| [entry.name, entry.live_bytes] }
        File.write("tags.part", JSON.generate(tags))
        File.rename("tags.part", "tags")
      end
    end
    Sidekiq.configure_server do |config|
      config.server_middleware { |chain| chain.add Memscope::SidekiqTags }
      config.on(:startup) do
        Memscope::MallocProfile.start(backend: :imports, rate: 4096)
        [Keeper, Teller].each(&:perform_async)
      end
    end
  RUBY

  def setup = skip_without_sidekiq

  def with_sidekiq(directory, application = APPLICATION, &block)
    command = sidekiq(directory, application, threads: 2)
    with_redis(directory) do
      spawned(*command, sidekiq_environment(directory), directory, &block)

      assert_predicate @ended, :success?
    end
  end

  def asked_from_outside(pid, directory)
    child_json("puts Memscope::Client.new(#{pid}).call(:workers).to_json",
               requires: ["json"], env: sidekiq_environment(directory))
  end

  def test_the_documented_setup
    assert_equal 3, SETUP.lines.size
    Dir.mktmpdir do |directory|
      with_sidekiq(directory) do |pid, log|
        in_a_job = JSON.parse(File.read(await(File.join(directory, "reading"), log)))
        [in_a_job, asked_from_outside(pid, directory)].each do |read|
          workers = Memscope::Workers.from_h(read)

          assert_equal([[pid, :single]], workers.map { |one| [one.pid, one.role] })
          assert_operator workers.first.samples, :>, 1
          assert_operator workers.first.rss_at_boot_bytes, :>, 10_000_000
        end
        refute_match(/error|memscope/i, File.read(log))
      end
    end
  end

  def test_jobs_tag_what_they_allocate
    Dir.mktmpdir do |directory|
      with_sidekiq(directory, TAGGED) do |_pid, log|
        tags = JSON.parse(File.read(await(File.join(directory, "tags"), log)))

        assert_in_delta 1_000_000, tags.fetch("Keeper"), 300_000
      end
    end
  end
end
