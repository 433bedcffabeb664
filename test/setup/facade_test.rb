# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/small_rails"

# A server loads everything as it boots: a file that a killed thread was loading may be missing for all threads.
class EagerLoadTest < MemscopeTest
  parallelize_me!

  # The constants that would still be loaded on first use.
  WAITING = <<~'RUBY'
    pending = lambda do |namespace|
      namespace.constants(false).flat_map do |name|
        next ["#{namespace}::#{name}"] if namespace.autoload?(name, false)

        constant = namespace.const_get(name, false)
        constant.is_a?(Module) && constant.name == "#{namespace}::#{name}" ? pending.call(constant) : []
      end
    end
    waiting = pending.call(Memscope)
  RUBY
  # Prints them, then the files that this use loads.
  USE = <<~RUBY.freeze
    #{WAITING}
    before = $LOADED_FEATURES.dup
    ledger = Memscope.ledger(deep: true, objects: true)
    readings = [ledger, ledger - Memscope.ledger, Memscope.doctor, Memscope.lint, Memscope.arenas, Memscope.mappings,
                Memscope.fragmentation, Memscope.size_classes, Memscope.workers, Memscope.ruby_heap,
                (census = Memscope.census), census - census, Memscope.history, Memscope.measure { 1 },
                Memscope.tags, Memscope.purge(dry_run: true), profile = Memscope.malloc_profile(backend: :imports) { 1 }]
    readings.each { |reading| reading.class.from_json(reading.to_json).to_s }
    [profile.to_html, profile.to_pprof, profile.to_speedscope, (profile - profile).to_s]
    Memscope::MallocProfile.lease.state
    Memscope::LastReadings.census
    Memscope::Prometheus.text
    Memscope.purge(:gc)
    Memscope.listen.close
    Memscope.tune
    puts JSON.generate([waiting, ($LOADED_FEATURES - before).grep(%r{^#{ChildProcess::ROOT}/})])
  RUBY
  # Constants that are not loaded: an application loads them by naming them.
  APART = %w[Memscope::CLI Memscope::Web Memscope::RackTags Memscope::SidekiqTags Memscope::Check
             Memscope::Assertions Memscope::Requires].freeze

  def test_nothing_is_left_to_load
    skip_under_sanitizer
    waiting, loaded = ChildProcess.run("Memscope.eager_load!\n#{USE}", requires: ["memscope"]).json

    assert_empty waiting - APART
    assert_empty loaded
  end

  # Each is loaded as an application loads it.
  { "web" => "require 'rack'; Memscope::Web", "tags of requests" => "Memscope::RackTags",
    "tags of jobs" => "Memscope::SidekiqTags" }.each do |name, mount|
    define_method("test_#{name.tr(' ', '_')}_load_the_rest") do
      skip_under_sanitizer
      waiting, loaded = ChildProcess.run("#{mount}\n#{USE}", requires: ["memscope"], bundle: true).json

      assert_empty waiting - APART
      assert_empty loaded
    end
  end

  def test_rails_loads_it_with_the_application
    skip_under_sanitizer
    [true, false].each do |eager|
      ran = SmallRails.run(<<~RUBY)
        #{SmallRails.source(eager_load: eager)}
        App.initialize!
        #{WAITING}
        puts JSON.generate(waiting)
      RUBY

      assert_equal eager, (JSON.parse(ran.out) - APART).empty?, ran.err
    end
  end
end
