# frozen_string_literal: true

# A Puma with five threads, from which as many clients request pages of mixed sizes: `BusyPuma.while_serving { … }` runs
# its block once Puma has answered some hundred requests.

require "net/http"
require "puma"
require "puma/server"
require "puma/log_writer"

module BusyPuma
  THREADS = 5
  WARMED_UP = 200

  # Answers as a template would: with many short-lived strings, joined.
  APPLICATION = lambda do |env|
    rows = Array.new(env["QUERY_STRING"].to_i) { |row| "<tr>#{"<td>#{row}</td>" * 10}</tr>" }
    [200, { "content-type" => "text/html" }, [rows.join("\n")]]
  end

  module_function

  def while_serving
    server = Puma::Server.new(APPLICATION, nil, min_threads: THREADS, max_threads: THREADS,
                                                log_writer: Puma::LogWriter.null)
    port = server.add_tcp_listener("127.0.0.1", 0).addr[1]
    server.run
    answered = Queue.new
    clients = Array.new(THREADS) { |seed| Thread.new { ask(port, Random.new(seed), answered) } }
    sleep 0.01 until answered.size >= WARMED_UP
    yield
  ensure
    clients&.each(&:kill)
    server&.stop(true)
  end

  def ask(port, random, answered)
    Net::HTTP.start("127.0.0.1", port) do |http|
      loop { answered << http.get("/?#{random.rand(2_000)}").body.size }
    end
  end
end
