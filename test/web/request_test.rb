# frozen_string_literal: true

require_relative "../support/web_case"

# Formats, queries and forms, well-formed or not.
class WebRequestTest < WebCase
  def test_the_ending_names_the_format_before_the_header_does
    app = application

    assert_equal "application/json", get("/arenas.json", BROWSER, on: app).media_type
    assert_equal "text/plain", get("/arenas.txt", JSON_PLEASE, on: app).media_type
    assert_equal "text/html", get("/history.html", JSON_PLEASE, on: app).media_type
  end

  def test_accept
    app = application

    { nil => "text/html", "*/*" => "text/html", "application/*" => "application/json", "text/*" => "text/html",
      "text/plain, text/html;q=0.5" => "text/plain", "application/json, text/html;q=0" => "application/json",
      "image/png" => "text/html",
      "application/json;q=0.4,text/plain;q=0.5" => "text/plain", ";;;,,,q=" => "text/html", "," * 5000 => "text/html",
      "application/json;q=nan" => "application/json", "\xff\xfe/*".b => "text/html" }.each do |accept, type|
      assert_equal type, get("/history", { "HTTP_ACCEPT" => accept }, on: app).media_type, accept.inspect
    end
  end

  def test_queries
    app = application
    { "arena=0" => 200, "arena=9999" => 400, "arena=999999999999" => 400, "arena=-1" => 400,
      "arena=0x10" => 400, "arena=%FF" => 400,
      "arena=%zz" => 400, "%" => 400, "arena=1%00" => 400, "&&&=&;" => 200, "x[y][z]=1&x=2" => 200, "arena" => 200,
      "arena=" => 200, "a=#{'b' * 1100}" => 414, "arena=1#{'&a' * 5000}" => 414 }.each do |query, status|
      response = get("/size_classes", { "QUERY_STRING" => query, **JSON_PLEASE }, on: app)

      assert_equal status, response.status, query
      refute_match(/Memscope|\.rb/, response.body) unless status == 200
    end
  end

  def test_forms_that_are_none
    app = application

    { { "lever" => "rm -rf" } => 400, {} => 400, { "lever" => "" } => 400, { "lever" => "gc\0" } => 400,
      { "lever" => "x" * 5000 } => 413, { "lever" => "\xff".b } => 400 }.each do |fields, status|
      assert_equal status, post(fields, on: app).status, fields.inspect[0, 80]
    end
    body = ->(text, **env) { request("POST", "/purge", { input: text, **OWN, **env.transform_keys(&:name) }, on: app) }

    assert_equal 415, body.call("{}", CONTENT_TYPE: "application/json").status
    assert_equal 415, body.call("x", CONTENT_TYPE: "multipart/form-data; boundary=x").status
    assert_equal 400, body.call("token=%00").status
    assert_equal 400, body.call("token=%FF&%&=%zz").status
    assert_equal 400, body.call("").status
    assert_equal 413, body.call("x" * 100_000).status
  end

  def test_a_form_that_a_middleware_has_read_already
    require "rack/method_override"
    app = Rack::MethodOverride.new(application)

    assert_equal 200, post({ "lever" => "gc" }, on: app).status
    assert_equal 413, post({ "lever" => "x" * 5000 }, on: app).status
  end

  def test_lengths_that_are_none
    app = application
    { "-1" => 400, "1e9" => 400, "9" * 30 => 400, "99999999999" => 413, "" => 200 }.each do |length, status|
      env = { **OWN, "CONTENT_LENGTH" => length, "rack.input" => StringIO.new("lever=gc") }

      assert_equal status, request("POST", "/purge", env, on: app, lint: false).status, length
    end
    unread = Object.new

    assert_equal 413, request("POST", "/purge", { **OWN, "CONTENT_LENGTH" => "5000", "rack.input" => unread },
                              on: app, lint: false).status
    assert_equal 400, request("POST", "/purge", { **OWN, "rack.input" => nil }, on: app, lint: false).status
  end
end
