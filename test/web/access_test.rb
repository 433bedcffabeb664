# frozen_string_literal: true

require_relative "../support/web_case"
require "socket"

# Who gets access, and that others learn nothing.
class WebAccessTest < WebCase
  CLOSED = "Access denied. See the application log for how to allow it.\n"
  # The headers of a browser that sends no Sec-Fetch-Site.
  ORIGIN = ->(origin) { { "HTTP_SEC_FETCH_SITE" => nil, "HTTP_ORIGIN" => origin } }

  def assert_closed(response, reason, status: 403)
    assert_equal status, response.status
    assert_equal CLOSED, response.body
    assert_equal 1, log.lines.size
    assert_match reason, log.lines.pop
  end

  def test_open_to_a_browser_on_the_same_machine_under_rails_in_development_and_test
    peers = %w[127.0.0.1 127.8.9.1 ::1 ::ffff:127.0.0.1]
    hosts = %w[localhost localhost:9292 LOCALHOST 127.0.0.1:3000 [::1] [::1]:80]

    peers.product(hosts, %w[development test]).each do |peer, host, name|
      asked = get("/assets/icon.svg", { "REMOTE_ADDR" => peer, "HTTP_HOST" => host }, on: application(rails_env: name))

      assert_equal 200, asked.status
    end

    assert_empty log.lines
  end

  def test_closed_in_every_other_environment_of_rails
    ["production", "staging", "", "Development", "development "].each do |name|
      app = application(rails_env: name)

      assert_closed get("/", on: app), /no access is configured, and Rails\.env is #{name.inspect}\. Configure username/
    end
  end

  def test_closed_without_rails
    assert_closed get("/", on: application(rails_env: nil)), /refused: no access is configured\. Configure username/
  end

  def test_foreign_peers_are_refused
    ["10.0.0.7", "192.168.1.1", "::2", "fe80::1%eth0", "128.0.0.1", "", nil, "localhost", "127.0.0.1, 10.0.0.7",
     "x" * 5000].each do |peer|
      assert_closed get("/", { "REMOTE_ADDR" => peer }), /the peer ".{0,60}" is not loopback/
    end
  end

  def test_foreign_hosts_are_refused_as_dns_rebinding_brings_them
    ["evil.test", "evil.test:9292", "127.0.0.1.evil.test", "localhost.evil.test", "evil.test@localhost", "0.0.0.0",
     "[::2]", "localhost:99999999", "localhost evil", "2130706433", "127.1", "[::1", "", "\0localhost",
     "localhost\n"].each do |host|
      assert_closed get("/", { "HTTP_HOST" => host }, lint: false), /the Host ".{0,80}" is not loopback/
    end
    assert_closed get("/", { "HTTP_HOST" => nil, "SERVER_NAME" => "localhost" }), /the Host "" is not loopback/
  end

  %w[X_FORWARDED_FOR X_FORWARDED_HOST X_FORWARDED_PROTO FORWARDED X_REAL_IP VIA CF_CONNECTING_IP TRUE_CLIENT_IP
     CLIENT_IP X_CLIENT_IP X_CLUSTER_CLIENT_IP FASTLY_CLIENT_IP X_ENVOY_EXTERNAL_ADDRESS X_ORIGINAL_FORWARDED_FOR
     X_ORIGINAL_HOST X_AMZN_TRACE_ID TAILSCALE_USER_LOGIN].each do |name|
    define_method("test_a_proxy_that_adds_#{name.downcase}_is_refused") do
      assert_closed get("/", { "HTTP_#{name}" => "127.0.0.1" }), /came through a proxy \(HTTP_#{name}\)/
    end
  end

  # nginx with nothing but proxy_pass sends the Host 127.0.0.1:PORT and no such header.
  def test_http_1_0_as_nginx_speaks_it_is_refused
    { "HTTP/1.0" => %w[SERVER_PROTOCOL HTTP_VERSION], "HTTP/0.9" => %w[SERVER_PROTOCOL],
      "HTTP/1.0, HTTP/1.1" => %w[HTTP_VERSION], "" => %w[SERVER_PROTOCOL] }.each do |version, names|
      names.each do |name|
        assert_closed get("/", { name => version }, lint: false),
                      /came through a proxy, by #{Regexp.escape(version.inspect)}\. Configure username/
      end
    end

    [{ "SERVER_PROTOCOL" => "HTTP/1.1" }, { "SERVER_PROTOCOL" => "HTTP/2" }, { "SERVER_PROTOCOL" => "HTTP/2.0" },
     { "SERVER_PROTOCOL" => "HTTP/3" }, { "SERVER_PROTOCOL" => nil },
     { "SERVER_PROTOCOL" => "HTTP/1.1", "HTTP_VERSION" => "HTTP/1.1" }].each do |env|
      assert_equal 200, get("/assets/icon.svg", env, lint: false).status
    end
  end

  def test_http_1_0_is_no_obstacle_where_access_is_configured
    app = application(username: "ops", password: "sesame")

    assert_equal 200, get("/assets/icon.svg", { **basic("ops", "sesame"), "SERVER_PROTOCOL" => "HTTP/1.0" },
                          on: app, lint: false).status
  end

  def test_a_unix_socket_is_a_proxys
    ours, theirs = UNIXSocket.pair

    %w[puma.socket unicorn.socket].each { |key| assert_closed get("/", { key => ours }), /came over a Unix socket/ }
  ensure
    [ours, theirs].each(&:close)
  end

  def test_username_and_password_decide_where_they_are_configured
    app = application(username: "ops", password: "sesame:1")

    assert_equal 200, get("/arenas.json", basic("ops", "sesame:1"), on: app).status
    assert_equal [401, CLOSED], [get("/", on: app).status, get("/", on: app).body]
    assert_empty log.lines, "a browser's first visit"
    wrong = [%w[ops sesame], %w[OPS sesame:1], ["", ""], ["ops", ""], ["", "sesame:1"], ["ops\0", "sesame:1"]]

    wrong.each { |pair| assert_closed get("/", basic(*pair), on: app), /wrong username or password/, status: 401 }
  end

  def test_they_are_asked_for_by_a_challenge_that_says_nothing_else
    response = get("/", on: application(username: "ops", password: "sesame"))

    assert_equal 'Basic realm="memscope", charset="UTF-8"', response["www-authenticate"]
    assert_nil get("/", { "HTTP_HOST" => "evil.test" })["www-authenticate"]
  end

  def test_malformed_credentials_are_wrong_ones
    app = application(username: "ops", password: "sesame")

    ["Basic", "Basic ", "Basic !!!", "Basic #{['ops'].pack('m0')}", "Bearer x", "\xff\xfe".b, "Basic \xff".b, " ", ":",
     "Basic #{'A' * 100_000}", "Digest username=ops", "Basic #{['ops:sesamex'].pack('m0')}"].each do |header|
      assert_closed get("/", { "HTTP_AUTHORIZATION" => header }, on: app), /wrong username or password/, status: 401
    end
  end

  def test_half_of_the_credentials_open_nothing
    assert_closed get("/", basic("ops", ""), on: application(username: "ops")), /no password/
    assert_closed get("/", basic("", "sesame"), on: application(password: "sesame")), /no username/
    assert_closed get("/", basic("ops", ""), on: application(username: "ops", password: "")), /no password/
  end

  # In Rails, a wrong MEMSCOPE_USERNAME becomes an empty one; on a developer's machine as well.
  def test_empty_credentials_open_nothing
    { { username: "" } => /no password/, { username: "", password: "" } => /no password/,
      { username: "", password: "sesame" } => /no username/, { password: "" } => /no password/ }
      .each do |settings, reason|
        app = application(**settings)

        assert_closed get("/", on: app), reason
        assert_closed get("/", basic("", settings[:password].to_s), on: app), reason
      end
  end

  # Without Rails, a wrong variable raises when it is used: the request is refused, and the response does not say why.
  def test_a_wrong_variable_lets_nobody_in
    ran = ChildProcess.run(<<~RUBY, env: { "MEMSCOPE_ACTIONS" => "of" }, bundler: true)
      require "memscope/web"
      require "stringio"
      env = { "REQUEST_METHOD" => "GET", "PATH_INFO" => "/", "REMOTE_ADDR" => "127.0.0.1", "HTTP_HOST" => "localhost",
              "rack.errors" => $stderr }
      2.times { puts Memscope::Web.call(env).values_at(0, 2).inspect }
    RUBY

    assert_equal [[403, [CLOSED]].inspect] * 2, ran.out.lines(chomp: true), ran
    assert_match(/access could not be decided: MEMSCOPE_ACTIONS: given "of", allowed: 1, .* \(Memscope::Invalid\)/,
                 ran.err)
  end

  def test_authorize_decides_alone
    seen = nil
    app = application(authorize: ->(request) { (seen = request).get_header("HTTP_X_KEY") == "1" }, username: "ops",
                      password: "sesame", rails_env: "production")

    assert_equal 200, get("/arenas.json", { "HTTP_X_KEY" => "1", "REMOTE_ADDR" => "10.0.0.7" }, on: app).status
    assert_instance_of Rack::Request, seen
    assert_closed get("/", basic("ops", "sesame"), on: app), /authorize returned false/
  end

  def test_an_authorize_that_fails_lets_nobody_in
    app = application(authorize: ->(_request) { raise IOError, "no database" })

    assert_closed get("/", on: app), /access could not be decided: no database \(IOError\)/
  end

  def test_a_configuration_that_fails_lets_nobody_in
    app = Memscope::Web::Application.new(configuration: -> { raise ArgumentError, "MEMSCOPE_ACTIONS" },
                                         rails_env: -> { "development" })
    response = get("/", on: app)

    assert_equal [403, CLOSED], [response.status, response.body]
  end

  def test_nothing_is_served_to_those_who_are_refused
    closed = application(rails_env: "production")
    bodies = ["", CLOSED, "{\"error\":\"#{CLOSED.chomp}\"}\n"]
    paths = %w[/ /arenas.json /metrics /assets/memscope.css /nothing /purge]
    paths.product(%w[GET HEAD POST OPTIONS DELETE TRACE FROB]).each do |path, verb|
      response = request(verb, path, on: closed)

      assert_equal 403, response.status
      assert_includes bodies, response.body
      assert_nil response["set-cookie"]
    end
  end

  def test_a_logger_that_raises_opens_nothing
    broken = Object.new
    def broken.warn(_line) = raise(IOError, "closed stream")
    configuration = Settings.new(actions: true, logger: broken)
    closed = Memscope::Web::Application.new(configuration: -> { configuration }, rails_env: -> {})
    errors = StringIO.new

    2.times { assert_equal 403, get("/", { "rack.errors" => errors }, on: closed).status }
    assert_match(/\Amemscope web: .* refused: no access is configured.*\n\z/, errors.string)
  end

  # Whatever the requests contain, there is one log line a minute for each reason.
  def test_two_hundred_refused_requests_are_two_lines
    now = 0.0
    app = application(clock: -> { now })
    statuses = Array.new(200) do |index|
      Thread.new { get("/", { index.odd? ? "REMOTE_ADDR" : "HTTP_HOST" => "10.0.0.#{index}" }, on: app).status }
    end.map(&:value)

    assert_equal [403], statuses.uniq
    assert_equal %w[Host peer], log.lines.map { |line| line[/refused: the (\w+)/, 1] }.sort
    { 59.9 => 2, 60.0 => 3 }.each do |moment, lines|
      now = moment
      2.times { get("/", { "HTTP_HOST" => "evil.test" }, on: app) }

      assert_equal lines, log.lines.size
    end
  end

  def test_the_log_is_one_line_of_ascii_whatever_the_request_says
    get("/", { "HTTP_HOST" => "evil\r\nINFO all is well \e[31m\xff" }, lint: false)
    get("/#{'%0a' * 2000}", { "HTTP_HOST" => "evil" })

    assert_equal 2, log.lines.size
    log.lines.each { |line| assert_match(/\A[ -~]{1,500}\z/, line) }
  end

  def test_posts_from_elsewhere_are_refused
    app = application
    { { "HTTP_SEC_FETCH_SITE" => "cross-site" } => /Sec-Fetch-Site is "cross-site"/,
      { "HTTP_SEC_FETCH_SITE" => "same-site" } => /Sec-Fetch-Site/, { "HTTP_SEC_FETCH_SITE" => "none" } => /Sec-Fetch/,
      { "HTTP_SEC_FETCH_SITE" => "" } => /Sec-Fetch/,
      ORIGIN["http://evil.test"] => /Origin "http:..evil.test" is not Host "localhost:9292"/,
      ORIGIN["null"] => /Origin "null"/, ORIGIN["http://localhost"] => /Origin/,
      ORIGIN["http://localhost:9292.evil.test"] => /Origin/, ORIGIN["ftp://localhost:9292"] => /Origin/,
      ORIGIN["localhost:9292"] => /Origin/, ORIGIN[""] => /Origin/,
      ORIGIN[nil] => /no Sec-Fetch-Site and no Origin/,
      { **ORIGIN[nil], "HTTP_COOKIE" => "memscope_token=1" } => /no Sec-Fetch-Site and no Origin/,
      { **ORIGIN[nil], **basic("ops", "sesame") } => /no Sec-Fetch-Site and no Origin/ }.each do |env, reason|
      response = post({ "lever" => "gc" }, { **OWN, **env }, on: app)

      assert_equal 403, response.status, env.inspect
      assert_includes response.body, "The form does not come from these pages."
      assert_match reason, log.lines.pop
    end
  end

  # Sec-Fetch-Site takes precedence over Origin.
  def test_the_first_sign_decides
    stranger = { "HTTP_SEC_FETCH_SITE" => "cross-site" }

    assert_equal 403, post({ "lever" => "gc" }, { **OWN, **stranger }).status
    assert_equal 200, post({ "lever" => "gc" }, { **OWN, "HTTP_ORIGIN" => "http://evil.test" }).status
  end

  def test_posts_from_its_own_pages_are_done
    app = application

    [{}, { "HTTP_SEC_FETCH_SITE" => nil }, { "HTTP_ORIGIN" => nil }, ORIGIN["https://LOCALHOST:9292"],
     { **ORIGIN["http://localhost"], "HTTP_HOST" => "localhost:80" },
     { **ORIGIN["https://localhost:443"], "HTTP_HOST" => "localhost" }].each do |env|
      assert_equal 200, post({ "lever" => "gc" }, { **OWN, **env }, on: app).status, env.inspect
    end
  end

  def test_a_program_purges_with_credentials_and_one_header
    app = application(username: "ops", password: "sesame")
    program = { **OWN.except("HTTP_ORIGIN", "HTTP_SEC_FETCH_SITE"), **basic("ops", "sesame") }

    assert_equal 403, post({ "lever" => "gc" }, program, on: app).status
    assert_equal 200, post({ "lever" => "gc" }, { **program, "HTTP_SEC_FETCH_SITE" => "same-origin" }, on: app).status
  end
end
