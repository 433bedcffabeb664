# frozen_string_literal: true

require_relative "../remote/port_holders"

module Memscope
  class Exercise < Reading
    # The processes of a server that answer requests.
    #
    # @api private
    module Processes
      class << self
        # @param port [Integer] the URL's
        # @param pid [Integer, nil] one of them; nil: those that listen on the port
        # @return [Array<Client>] of each
        # @raise [Failed] if none is found
        # @raise [Client::Unreachable] if one does not listen for memscope
        def clients(port, pid)
          pids = pid ? [pid] : workers(PortHolders.pids(port))
          raise Failed, unseen(port) if pids.empty?

          clients = pids.map { |one| Client.new(one) }
          reported(clients.first) || clients.each { |client| client.call(:rss) }
        end

        private

        # A cluster's master holds the port too, and answers nothing.
        def workers(pids)
          masters = pids.map { |pid| parent(pid) }
          (pids - masters).empty? ? pids : pids - masters
        end

        # @return [Array<Client>, nil] of the workers of Puma's cluster; nil if the process does not know any
        def reported(client)
          workers = client.call(:workers).select { |worker| worker.role == :worker }
          workers.map { |worker| worker.pid == client.pid ? client : Client.new(worker.pid) } if workers.any?
        end

        def parent(pid)
          File.read("/proc/#{pid}/stat").rpartition(")").last.split[1].to_i
        rescue SystemCallError
          nil
        end

        def unseen(port)
          "no process of this user listens on port #{port}, as far as /proc says; --pid (pid:) names one of the " \
            "server's"
        end
      end
    end
    private_constant :Processes
  end
end
