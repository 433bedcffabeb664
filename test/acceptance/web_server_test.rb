# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/web_server"

# Attacks on a real server, over the wire.
class WebServerTest < MemscopeTest
  def setup
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    skip_under_sanitizer
    super
  end

  # No environment opens anything.
  { "puma" => { "RACK_ENV" => "development" }, "rackup" => {} }.each do |program, env|
    test = define_method("test_closed_without_rails_under_#{program}") do
      WebServer.run(program, env: env) do |server|
        response = server.get("/memscope", "host" => "localhost")

        assert_equal "403", response.code
        assert_equal "hello", server.get("/hello").body
        assert_match(/refused: no access is configured. Configure username and password/, server.log)
      end
    end
    only_in_full(test) if program == "rackup"
  end

  def test_an_authorised_person_in_production
    env = { "RACK_ENV" => "production", "MEMSCOPE_USERNAME" => "ops", "MEMSCOPE_PASSWORD" => "sesame" }
    WebServer.run(env: env) do |server|
      header = { "authorization" => "Basic #{['ops:sesame'].pack('m0')}" }

      assert_equal "401", server.get("/memscope").code
      assert_equal "401", server.get("/memscope", "authorization" => "Basic #{['ops:x'].pack('m0')}").code
      assert_equal "200", server.get("/memscope", header).code
      ledger = Memscope::Ledger.from_h(JSON.parse(server.get("/memscope/ledger.json", header).body))

      assert_equal server.pid, ledger.pid
      assert_equal ledger.rss_bytes, ledger.rows.sum(&:bytes)
    end
  end

  def test_attacks_over_the_wire
    WebServer.run(env: { "OPEN" => "1" }) do |server|
      assert_wire(server)
      assert_slow_clients(server)
      assert_crowd(server)

      assert_equal "200", server.get("/memscope/arenas.json").code
    end
  end

  private

  def assert_wire(server)
    { "GET /memscope/assets/../../../../etc/passwd" => 404, "GET /memscope/assets/%2e%2e/%2e%2e/web.rb" => 404,
      "GET /memscope/assets/..%2f..%2fweb.rb" => 404, "GET /memscope/assets/memscope.css%00" => 404,
      "GET /memscope/arenas" => 302, "GET /memscope" => 200, "GET /memscope/" => 200, "HEAD /memscope" => 200,
      "OPTIONS /memscope/purge" => 204, "GET /memscope/purge?lever=gc" => 405, "DELETE /memscope" => 405,
      "TRACE /memscope" => 405, "GET /memscope?#{'a' * 5000}" => 414,
      "GET /memscope/workers?#{'a' * 5000}" => 414, "GET /memscope/size_classes?#{'a' * 5000}" => 414,
      "POST /memscope/purge" => 403 }.each do |line, status|
      answer = server.raw("#{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

      assert_match(%r{\AHTTP/1.1 #{status} }, answer, line)
      refute_match(/root:|module Memscope/, answer)
      assert_match(/^content-security-policy: default-src 'none'/i, answer, line)
    end
    assert_match(%r{\AHTTP/1.1 (400|431|414|501) |\A\z}, server.raw("GET /memscope?#{'a' * 200_000} HTTP/1.1\r\n\r\n"))
    assert_match(%r{\AHTTP/1.\d (400|501|405) }, server.raw("FROB /memscope HTTP/1.0\r\nHost: localhost\r\n\r\n"))
  end

  # Each client sends half a request; other requests are served meanwhile.
  def assert_slow_clients(server)
    sockets = Array.new(40) { TCPSocket.new("127.0.0.1", server.port) }
    sockets.each do |socket|
      socket.write("POST /memscope/purge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\nl")
    end

    assert_equal "hello", server.get("/hello").body
    assert_equal "200", server.get("/memscope/ledger.json").code
  ensure
    sockets&.each(&:close)
  end

  def assert_crowd(server)
    asked = Array.new(200) { Thread.new { server.get("/memscope/doctor.json").code } }
    hello = Array.new(5) { server.get("/hello").body }

    assert_equal ["200"], asked.map(&:value).uniq
    assert_equal ["hello"], hello.uniq
  end
end
