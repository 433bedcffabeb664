# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/listening"
require "memscope/cli"
require "stringio"

# A server on this machine is driven over HTTP, and its processes are found by the port or by --pid.
class ExerciseServerTest < MemscopeTest
  include Listening

  # Answers each request with the status in its path, and keeps an object with each. Writes its port to a file.
  SERVER = <<~'RUBY'
    require "socket"
    class Order; end
    KEPT = []
    SERVER = TCPServer.open("127.0.0.1", 0)
    File.write(ENV.fetch("PORT_FILE"), SERVER.addr[1])
    def serve(client)
      OPEN << client
      while (line = client.gets)
        status = line[%r{ /(\d+) }, 1].to_i
        headers = []
        headers << line while (line = client.gets.chomp) != ""
        HEADERS.replace(headers)
        KEPT << Order.new
        client.write("HTTP/1.1 #{status} Said\r\nContent-Length: 4\r\nLocation: /login\r\n\r\nfine")
      end
    rescue SystemCallError
      nil
    ensure
      OPEN.delete(client)
    end
    OPEN = []
    HEADERS = []
    fork { $stdin.read } if ENV["CHILD"] # until the test closes it
    Thread.new { loop { Thread.new(SERVER.accept) { |client| serve(client) } } }
  RUBY

  def test_a_server_whose_garbage_is_collected
    skip_under_sanitizer
    server, port = serving
    found, status = exercise("http://localhost:#{port}/200", "--gc", "--header=X-Order: 7")

    assert_equal [1, :grows, [server.pid]], [status, found.verdict, found.pids]
    assert_equal(["Order", [10] * 5, %w[KEPT Array Order]],
                 found.check.grown.first.then { |one| [one.name, one.growth, one.held_by] })
    assert_equal ["http://localhost:#{port}", "/200", nil, true],
                 [found.target, found.path, found.environment, found.collected?]
    server.tell("[KEPT.size, HEADERS.grep(/order/i)]")

    assert_equal '[100, ["X-Order: 7"]]', server.gets.sub(/(?<=X-)o/i, "O")
    server.tell("sleep 0.01 until OPEN.empty?; 1") # the connection is closed

    assert_equal "1", server.gets
  end

  def test_without_a_collection_there_is_no_verdict
    skip_under_sanitizer
    server, port = serving
    found, status = exercise("http://0.0.0.0:#{port}/200", "--pid=#{server.pid}", "--threads=2")

    assert_equal [0, :unknown, nil, false], [status, found.verdict, found.check, found.collected?]
    assert_match(/\Agarbage counts too, .* --gc/, found.reasons[:check])
    assert_equal 11, found.points.size
    assert_match(/No verdict\./, found.to_s)
  end

  # As a job supervisor that Puma forks: the server is the parent.
  def test_a_child_that_holds_the_port
    skip_under_sanitizer
    server, port = serving("CHILD" => "1")
    found, = exercise("http://localhost:#{port}/200", "--gc")

    assert_equal [:grows, 2], [found.verdict, found.pids.size]
    assert_includes found.pids, server.pid
  end

  def test_answers_that_fail
    skip_under_sanitizer
    _, port = serving

    { "/500" => "status 500 to /login", "/301" => "status 301 to /login; allow_status (--allow-status 301) allows it" }
      .each do |path, message|
      assert_equal ["memscope exercise: GET http://127.0.0.1:#{port}#{path}: #{message}\n", 74],
                   exercise("http://127.0.0.1:#{port}#{path}")
    end
  end

  def test_a_process_that_does_not_listen
    server, port = serving("MEMSCOPE_LISTEN" => nil)
    error, status = exercise("http://127.0.0.1:#{port}/200")

    assert_equal 74, status
    assert_includes error, "memscope exercise: process #{server.pid} does not listen: let it require"
  end

  private

  # @return [Array(Listening, Integer)] the server, and its port
  def serving(env = {})
    file = File.join(@directory, "port")
    [listening(SERVER, env: { "PORT_FILE" => file, **env }), Integer(File.read(file))]
  end

  # @return [Array(Memscope::Exercise, Integer), Array(String, Integer)] the exercise or the error, and the exit status
  def exercise(*arguments)
    out = StringIO.new
    err = StringIO.new
    status = Memscope::CLI.run(["exercise", "--json", "--requests=100", *arguments], out: out, err: err)
    [err.string.empty? ? Memscope::Exercise.from_json(out.string) : err.string, status]
  end
end
