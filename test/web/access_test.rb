# frozen_string_literal: true

require_relative "../support/web_case"

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

  def test_closed_until_it_is_configured
    assert_closed get("/", on: application(open: false)), /refused: no access is configured\. Configure username/
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
    assert_nil get("/", on: application(open: false))["www-authenticate"]
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
    ran = ChildProcess.run(<<~RUBY, env: { "MEMSCOPE_ACTIONS" => "of" }, bundle: true)
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
                      password: "sesame")

    assert_equal 200, get("/arenas.json", { "HTTP_X_KEY" => "1", "REMOTE_ADDR" => "10.0.0.7" }, on: app).status
    assert_instance_of Rack::Request, seen
    assert_closed get("/", basic("ops", "sesame"), on: app), /authorize returned false/
  end

  def test_an_authorize_that_fails_lets_nobody_in
    app = application(authorize: ->(_request) { raise IOError, "no database" })

    assert_closed get("/", on: app), /access could not be decided: no database \(IOError\)/
  end

  def test_a_configuration_that_fails_lets_nobody_in
    app = Memscope::Web::Application.new(configuration: -> { raise ArgumentError, "MEMSCOPE_ACTIONS" })
    response = get("/", on: app)

    assert_equal [403, CLOSED], [response.status, response.body]
  end

  def test_nothing_is_served_to_those_who_are_refused
    closed = application(open: false)
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
    closed = Memscope::Web::Application.new(configuration: -> { configuration })
    errors = StringIO.new

    2.times { assert_equal 403, get("/", { "rack.errors" => errors }, on: closed).status }
    assert_match(/\Amemscope web: .* refused: no access is configured.*\n\z/, errors.string)
  end

  # Whatever the requests contain, there is one log line a minute for each reason.
  def test_two_hundred_refused_requests_are_two_lines
    now = 0.0
    app = application(clock: -> { now }, authorize: ->(request) { request.host == "evil.test" ? false : raise("no") })
    statuses = Array.new(200) do |index|
      Thread.new { get("/", { "HTTP_HOST" => index.odd? ? "evil.test" : "10.0.0.#{index}" }, on: app).status }
    end.map(&:value)

    assert_equal [403], statuses.uniq
    assert_equal %w[access authorize], log.lines.map { |line| line[/refused: (\w+)/, 1] }.sort
    { 59.9 => 2, 60.0 => 3 }.each do |moment, lines|
      now = moment
      2.times { get("/", { "HTTP_HOST" => "evil.test" }, on: app) }

      assert_equal lines, log.lines.size
    end
  end

  def test_the_log_is_one_line_of_ascii_whatever_the_request_says
    app = application(authorize: ->(request) { raise request.get_header("HTTP_HOST") })
    get("/", { "HTTP_HOST" => "evil\r\nINFO all is well \e[31m\xff" }, on: app, lint: false)
    get("/#{'%0a' * 2000}", { "HTTP_HOST" => "evil" }, on: app)

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
