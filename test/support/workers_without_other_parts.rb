# frozen_string_literal: true

require "json"
require "socket"

# What the workers need of other parts of memscope, in the smallest form; nothing where those are there.
directory = File.expand_path("../../lib/memscope", __dir__)

unless File.exist?(File.join(directory, "configuration.rb"))
  module Memscope
    class Configuration
      Settings = Struct.new(:worker_interval_seconds, :background_thread)

      def self.so_far
        Settings.new(Float(ENV.fetch("MEMSCOPE_WORKER_INTERVAL")), ENV["MEMSCOPE_BACKGROUND_THREAD"] == "1")
      end
    end
  end
end

unless File.exist?(File.join(directory, "client.rb"))
  module Memscope
    def self.socket_path(pid) = File.join(ENV.fetch("MEMSCOPE_SOCKET_DIRECTORY"), "#{pid}.sock")

    def self.listen
      server = UNIXServer.new(socket_path(Process.pid))
      Thread.new do
        loop do
          socket = server.accept
          call = JSON.parse(socket.gets).fetch("call")
          socket.puts(JSON.generate(ok: public_send(call).to_h))
          socket.close
        end
      end
    end

    class Client
      def initialize(pid)
        @pid = pid
      end

      def call(name)
        UNIXSocket.open(Memscope.socket_path(@pid)) do |socket|
          socket.puts(JSON.generate(call: name))
          Workers.from_h(JSON.parse(socket.gets).fetch("ok"))
        end
      end
    end
  end
end
