# frozen_string_literal: true

require "net/http"
require "openssl"
require "socket"
require_relative "answer"
require_relative "processes"

module Memscope
  class Exercise < Reading
    # A server on this machine: its URL, and its processes, which listen.
    #
    # @api private
    class Server
      HOSTS = "http or https, and localhost or an address of this machine: an exercise is a load"
      private_constant :HOSTS

      # @raise [ArgumentError] for an invalid URL, or one of another machine
      # @raise [Failed] if the server's processes are not found, or do not listen
      def initialize(url, pid:, gc:, headers:, allowed:)
        @url = parsed(url)
        @allowed = Answer.check_allowed(allowed)
        @headers = headers
        @gc = gc
        @connections = []
        @clients = Processes.clients(@url.port, pid)
      end

      # @return [Hash{Symbol => Object}] fields of the Exercise
      def to_h
        { target: "#{@url.scheme}://#{@url.host}:#{@url.port}", path: @url.request_uri, environment: nil,
          pids: @clients.map(&:pid), collected: @gc }
      end

      # @return [Hash{Symbol => String}]
      def reasons = {}

      # @return [Boolean]
      def collected? = @gc

      # @return [Hash{Symbol => Object}] what GrowthCheck.follow counts: the server's processes
      def memory = { clients: @clients, gc: @gc }

      # @return [Connection] makes one request when called, in one thread
      def caller = Connection.new(@url, @headers, @allowed).tap { |one| @connections << one }

      # @return [void]
      def close = @connections.each(&:close)

      private

      def parsed(text)
        url = URI.parse(text)
        refuse(text) unless url.host && own?(url)
        url
      rescue URI::InvalidURIError, SocketError
        refuse(text)
      end

      # Every address of the host must be this machine's. Servers print 0.0.0.0 when they listen on all addresses of
      # the machine.
      def own?(url)
        addresses = Addrinfo.getaddrinfo(url.hostname, url.port, nil, :STREAM)
        own = [*Socket.ip_address_list.map(&:ip_address), "0.0.0.0", "::"]
        addresses.all? { |one| one.ipv4_loopback? || one.ipv6_loopback? || own.include?(one.ip_address) }
      end

      def refuse(given) = Field.refuse("Memscope::Exercise.run: target", given, HOSTS)
    end

    # A connection to a server, which stays open from one request to the next.
    #
    # @api private
    class Connection
      ERRORS = [SystemCallError, IOError, SocketError, Timeout::Error, Net::ProtocolError, Net::HTTPBadResponse,
                OpenSSL::SSL::SSLError].freeze
      private_constant :ERRORS

      # @param url [URI::HTTP]
      def initialize(url, headers, allowed)
        @url = url
        @headers = headers
        @allowed = allowed
        @http = Net::HTTP.new(url.hostname, url.port, nil) # nil: through no proxy
        @http.use_ssl = url.is_a?(URI::HTTPS)
        @http.verify_mode = OpenSSL::SSL::VERIFY_NONE # a server on this machine may have any certificate
      end

      # @return [void]
      # @raise [Failed]
      def call
        answer, text = exchange
        Answer.check("GET #{@url}", answer.code.to_i, @allowed, location: answer["location"], error: text)
      end

      # @return [void]
      def close = (@http.finish if @http.started?)

      private

      # @return [Array(Net::HTTPResponse, String)] the answer, and the first part of its body; the whole body is read
      def exchange
        @http.start unless @http.started?
        first = nil
        answer = @http.request(Net::HTTP::Get.new(@url, @headers)) do |one|
          one.read_body { |part| first ||= part }
        end
        [answer, first]
      rescue *ERRORS => e
        raise Failed, "GET #{@url}: #{Answer.excerpt(e)}"
      end
    end
    private_constant :Connection
  end
end
