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
        # @param pid [Integer, nil] a process of the server; nil: the processes that listen on the port
        # @return [Array<Client>] one for each process
        # @raise [Failed] if none is found
        # @raise [Client::Unreachable] if one does not listen for memscope
        def clients(port, pid)
          pids = pid ? [pid] : PortHolders.pids(port)
          raise Failed, unseen(port) if pids.empty?

          clients = without_silent_masters(pids)
          reported(clients) || clients.each { |client| client.call(:rss) }
        end

        private

        # Leaves out each process that does not listen for memscope and is the parent of another holder: it may be a
        # master that does not have the application. A parent that listens counts: it may be the server itself, and its
        # child a supervisor of jobs that has inherited the port.
        def without_silent_masters(pids)
          parents = pids.map { |pid| parent(pid) }
          pids.map { |pid| Client.new(pid) }.reject { |client| parents.include?(client.pid) && !client.listens? }
        end

        # @return [Array<Client>, nil] of the workers of Puma's cluster; nil if no process knows any
        def reported(clients)
          pids = clients.lazy.map { |client| client.call(:workers).select { |one| one.role == :worker }.map(&:pid) }
                        .find(&:any?)
          pids&.map { |pid| Client.new(pid) }
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
