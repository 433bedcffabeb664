# frozen_string_literal: true

require "socket"

# A server that answers every request with the same bytes, whatever they are, and keeps what it was asked.
class HTTPAnswers
  # Serves for the length of the block, which gets the server.
  def self.serve(answer, host: "127.0.0.1")
    server = new(answer, host)
    yield server
  ensure
    server&.close
  end

  # An answer of HTTP.
  def self.response(body, type: "application/json; charset=utf-8", status: "200 OK", **headers)
    headers = { "Content-Type" => type, "Content-Length" => body.bytesize, "Connection" => "close", **headers }
    "HTTP/1.1 #{status}\r\n#{headers.compact.map { |name, value| "#{name}: #{value}\r\n" }.join}\r\n#{body}"
  end

  # @return [Array<String>] requests, with their bodies
  attr_reader :requests

  def initialize(answer, host = "127.0.0.1")
    @answer = answer
    @requests = []
    @server = TCPServer.new(host, 0)
    @thread = Thread.new { loop { serve(@server.accept) } }
  end

  # @return [Integer]
  def port = @server.addr[1]

  def close
    @thread.kill.join
    @server.close
  end

  private

  def serve(client)
    head = client.gets("\r\n\r\n").to_s
    @requests << (head + client.read(head[/^Content-Length: (\d+)/i, 1].to_i).to_s)
    client.write(@answer)
  rescue SystemCallError
    nil # the client has had enough
  ensure
    client.close
  end
end
