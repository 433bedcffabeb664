# frozen_string_literal: true

require_relative "../test_helper"
require "tmpdir"
require_relative "../support/histories"

# The recipes of docs/apm.md, as they are written there, with the clients of APMs. What these would send is read where
# they hand it to their agents.
#
# `rake battery:apm` installs the clients, which are not in the bundle.
class ApmTest < MemscopeTest
  parallelize_me!

  GEMS = ENV.fetch("MEMSCOPE_APM_GEMS", nil)
  DOCUMENT = File.read(File.join(ChildProcess::ROOT, "docs/apm.md"))
  # What all recipes subscribe to: a leak, its end, and a purge.
  EVENTS = <<~RUBY
    require "json"
    require "active_support"
    require "active_support/notifications"

    LEAK = Memscope::Verdict.from_json(File.read(ENV.fetch("LEAK")))

    def cause_events
      [LEAK, LEAK.class.from_h({ **LEAK.to_h, verdict: :steady })].each do |verdict|
        Memscope::Verdict.define_singleton_method(:of) { |*, **| verdict }
        Memscope::Verdict.judge(nil)
        subscribers
      end
      Memscope.purge(:gc)
      subscribers
    end

    # Waits for those that run.
    def subscribers
      Thread.list.select { |thread| thread.name == "memscope event" }.each(&:join)
    end
  RUBY

  def recipe(name) = DOCUMENT[/^## #{name}\n.*?```ruby\n(.*?)```/m, 1]

  # The answer of a child that has set the client up, followed the recipe, caused the events and read what was sent.
  def sent(name, set_up, read)
    skip "rake battery:apm installs the clients" unless GEMS
    Dir.mktmpdir do |directory| # where the clients write their logs
      File.write("#{directory}/leak", leak.to_json)
      script = ["Dir.chdir(#{directory.dump})", EVENTS, set_up, recipe(name), "cause_events",
                "puts JSON.generate(#{read})"].join("\n")
      child_json(script, requires: ["json"], gems: true,
                         env: { "GEM_HOME" => GEMS, "GEM_PATH" => GEMS, "LEAK" => "#{directory}/leak" })
    end
  end

  def leak = @leak ||= Histories.leak(:native)

  def test_appsignal
    gauges, error, data = sent("AppSignal", <<~RUBY, "[GAUGES, *ERRORS.map(&:to_s), DATA.last]")
      require "appsignal"
      Memscope::Runtime.current.verdict = LEAK.class.from_h({ **LEAK.to_h, verdict: :steady })
      GAUGES = []
      ERRORS = []
      DATA = []
      Appsignal.singleton_class.prepend(Module.new do
        define_method(:set_gauge) { |*given| super(*given); GAUGES << given }
        define_method(:report_error) { |error, &block| super(error); ERRORS << error; block.call }
        define_method(:add_custom_data) { |data| super(data); DATA << data }
      end)
      at = Appsignal::Probes.method(:register).owner
      at.prepend(Module.new { define_method(:register) { |name, probe| super(name, probe); probe.call } })
    RUBY

    assert_equal %w[memscope_rss_bytes memscope_verdict], (gauges.map(&:first) - ["memscope_cgroup_limit_bytes"]).uniq
    assert_equal [leak.sentence, "leak"], [error, data["verdict"]]
  end

  def test_datadog
    packet, another = sent("Datadog", <<~RUBY, "[SOCKET.recv(65_536), SOCKET.recv_nonblock(65_536, exception: false)]")
      require "socket"
      require "datadog/statsd"
      SOCKET = UDPSocket.new.tap { |socket| socket.bind("127.0.0.1", 0) }
      original = Datadog::Statsd.method(:new)
      Datadog::Statsd.define_singleton_method(:new) { |host, _port| original.call(host, SOCKET.addr[1], single_thread: true, buffer_max_pool_size: 1) }
    RUBY

    assert_match(/\A_e\{16,\d+\}:verdict\.memscope\|Leak of native memory: .*\|t:warning\|#pid:\d+/, packet)
    assert_equal "wait_readable", another
  end

  def test_new_relic
    events = sent("New Relic", <<~RUBY, "EVENTS_SENT")
      require "newrelic_rpm"
      EVENTS_SENT = []
      NewRelic::Agent.singleton_class.prepend(Module.new do
        define_method(:record_custom_event) { |*given| super(*given); EVENTS_SENT << given }
      end)
    RUBY

    assert_equal([%w[Memscope verdict.memscope leak], %w[Memscope verdict.memscope steady],
                  %w[Memscope purge.memscope]],
                 events.map { |type, attributes| [type, *attributes.values_at("event", "verdict").compact] })
    assert_empty events.flat_map { |_type, attributes| attributes.values }.grep_v(Numeric).grep_v(String)
  end

  def test_scout
    context, errors = sent("Scout", <<~RUBY, "[CONTEXT, CAPTURED.map { |it| [it.class.name, it.message] }]")
      require "scout_apm"
      CONTEXT = []
      CAPTURED = []
      ScoutApm::Context.singleton_class.prepend(Module.new { define_method(:add) { |it| super(it); CONTEXT << it } })
      ScoutApm::Agent.instance.context.config.define_singleton_method(:value) { |key| key == "errors_enabled" || super(key) }
      ScoutApm::Agent.instance.context.error_buffer.define_singleton_method(:capture) { |it, _env| CAPTURED << it }
      ActiveSupport.run_load_hooks(:action_controller, Class.new { def self.before_action = yield })
    RUBY

    assert_operator context.first["memscope_rss_mib"], :>, 1
    assert_equal [{ "layer" => "native" }, [["MemscopeVerdict", leak.sentence]]], [context.last, errors]
  end

  def test_sentry
    events = sent("Sentry", <<~RUBY, "Sentry.get_current_client.transport.events.map(&:to_h)")
      require "sentry-ruby"
      Sentry.init do |config|
        config.dsn = "http://key@127.0.0.1/1"
        config.transport.transport_class = Sentry::DummyTransport
        config.background_worker_threads = 0
        config.sdk_logger = Logger.new(File::NULL)
      end
    RUBY

    assert_equal([[leak.sentence, "warning", "leak"]],
                 events.map { |event| [event["message"], event["level"], event.dig("extra", "verdict")] })
  end

  def test_honeybadger
    events, notice = sent("Honeybadger", <<~RUBY, "Honeybadger.flush && [TEST.events, *TEST.notifications[:notices]]")
      require "logger"
      require "honeybadger/ruby"
      Honeybadger.configure do |config|
        config.api_key = "x"
        config.backend = "test"
        config.insights.enabled = true
        config.logger = Logger.new(File::NULL)
      end
      TEST = Honeybadger::Backend::Test
    RUBY

    assert_equal(%w[verdict.memscope verdict.memscope purge.memscope], events.map { |event| event["event_type"] })
    assert_equal ["leak", leak.sentence],
                 [notice.dig("request", "context", "verdict"), notice.dig("error", "message")]
  end
end
