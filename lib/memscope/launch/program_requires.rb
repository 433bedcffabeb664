# frozen_string_literal: true

module Memscope
  module Launch
    # Records the cost of each file that the program loads, from before its script starts until the program ends, and
    # writes a Requires as JSON.
    class ProgramRequires
      # @param order [Handoff::Order] title and output
      def initialize(order)
        @order = order
        @pid = Process.pid
        @io = order.output
      end

      # To be called before the program registers its own at_exit handlers: the first one registered runs last.
      def start
        @order.load_memscope
        # Required before the first reading: required later, their memory would be the program's.
        require_relative "../requires"
        require_relative "require_costs"
        require_relative "require_tree"
        require_relative "require_recorder"
        obstacle = ObjectProfile.obstacle
        return @order.complain("nothing is recorded: #{obstacle}") if obstacle

        @costs = RequireCosts.new
        why = RequireRecorder.start
        return @order.complain("nothing is recorded: #{Reasons.sentence(why)}") if why

        at_exit { finish if Process.pid == @pid }
      rescue StandardError, ScriptError => e
        @order.complain("nothing is recorded: #{e.message} (#{e.class})")
      end

      private

      # An error here does not change how the program ends.
      def finish
        body = @costs.finish
        @io.write("#{Requires.capture(body).to_json}\n")
      rescue StandardError, ScriptError, NoMemoryError => e
        @order.complain("no report: #{e.message} (#{e.class})")
      end
    end
  end
end
