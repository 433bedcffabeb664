# frozen_string_literal: true

require_relative "../support/listening"
require_relative "../support/services"
require_relative "../support/web_case"

# In this process, with processes of Sidekiq that are planted in a real Redis. Of real ones, see
# test/acceptance/sidekiq_web_test.rb.
class WebSidekiqTabTest < WebCase
  include Listening
  include Services

  HOSTILE = "<%= exit! %><script>"
  # A process that looks like Sidekiq's, and has run a job.
  SIDEKIQ = <<~RUBY.freeze
    Process.setproctitle("sidekiq 7.3.10 shop [0 of 5 busy]")
    Memscope.tag(#{HOSTILE.inspect}) { nil }
  RUBY

  def setup
    super
    skip_without_sidekiq
    require "memscope/sidekiq_web"
    require "sidekiq/component"
  end

  def request(verb = "GET") = Rack::MockRequest.new(Sidekiq::Web.new).request(verb, "/memory", "rack.session" => {})

  # A process of that RSS in KiB, by its heartbeat.
  def plant(pid, host, kib, identity: "#{host}:#{pid}:#{kib}")
    info = { hostname: host, pid: pid, tag: HOSTILE, identity: identity, started_at: 0, queues: [], labels: [] }
    Sidekiq.redis do |redis|
      redis.call("sadd", "processes", identity)
      redis.call("hset", identity, "info", JSON.generate(info), "rss", kib, "busy", 0, "beat", 0, "quiet", "false")
    end
  end

  def text(response)
    CGI.unescapeHTML(response.body[%r{<h1>Memory</h1>.*</section>}m].gsub(/<[^>]*>/, " ").squeeze(" "))
  end

  def test_processes_here_and_elsewhere
    with_redis(@directory) do |socket|
      Sidekiq.configure_client { |config| config.redis = { url: "unix://#{socket}" } }
      Memscope.configure { |config| config.socket_directory = sockets }

      assert_includes text(request), "No process of Sidekiq is running."
      assert_equal [403], %w[POST PUT DELETE].map { |verb| request(verb).status }.uniq
      assert_planted
    end
  ensure
    Memscope.configure { |config| config.socket_directory = nil }
  end

  private

  def assert_planted
    host = Socket.gethostname
    own = listening(SIDEKIQ).pid
    plant(own, host, 1024)
    plant(own, "far", 999_424)
    plant(Process.pid, host, 2048)
    plant(4_194_304, host, 512)
    plant(0, host, 256)
    plant(Process.pid, host, 128, identity: Object.new.extend(Sidekiq::Component).identity)
    %i[verdict tags].each { |call| Memscope::Client.new(own).call(call) } # loads what its answers need
    response = request
    kernels = File.read("/proc/#{own}/status")[/^VmRSS:\s*(\d+)/, 1].to_i / 1024.0

    assert_in_delta kernels, text(response)[/#{host}:#{own} \S.*? (\d+\.\d) Not judged/, 1].to_f, 1
    assert_equal 200, response.status
    assert_match(/far:#{own} .* 976\.0 On another machine, in another container, or/, text(response))
    assert_match(/#{host}:#{own} .* [1-9]\d\.\d Not judged: a history needs/, text(response))
    assert_match(/#{host}:#{Process.pid} .* 2\.0 On another machine, in another container, or/, text(response))
    assert_match(/#{host}:4194304 .* 0\.5 .*no process/i, text(response))
    assert_match(/#{host}:0 .* 0\.2 .*allowed/i, text(response))
    assert_match(/#{host}:#{Process.pid} [^.]* [1-9]\d\.\d Not judged/, text(response))
    assert_match(/Jobs of #{host}:#{own} .* tag .* #{Regexp.escape(HOSTILE)} .* 1 /m, text(response))
    refute_includes response.body, HOSTILE
  end
end
