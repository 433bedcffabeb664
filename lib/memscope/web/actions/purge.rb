# frozen_string_literal: true

require_relative "../../purge"
require_relative "../pages/returned"
require_relative "../response"

module Memscope
  module Web
    # The requests that change the process.
    #
    # @api private
    module Actions
      # POST /purge.
      #
      # @api private
      module Purge
        NAMES = Memscope::Purge::LEVERS.to_h { |lever| [lever.name, lever] }.freeze
        ALL = "all"
        private_constant :NAMES, :ALL

        class << self
          # @param form [Hash{String => Array<String>}] lever: names, or "all"; dry_run: "1" to predict only; worker:
          #   the index of one, or "all", the default; pid: the process of the page that has the button
          # @param calls [ClusterCalls]
          # @return [Pages::Returned, Pages::ReturnedByWorkers]
          # @raise [HttpError]
          def run(form, calls)
            levers = levers(form.fetch("lever", []))
            worker = form["worker"]&.last
            result = calls.purge(levers, dry_run: form["dry_run"]&.last == "1", worker: worker)
            return Pages::ReturnedByWorkers.new(result) if result.is_a?(Memscope::Purge::WorkerResults)

            Pages::Returned.new(result, (form["pid"]&.last.to_s[/\A\d{1,10}\z/]&.to_i unless worker))
          rescue ArgumentError => e
            raise HttpError.new(400, "#{e.message.delete_prefix('Memscope.purge: ')}.")
          rescue Memscope::Purge::Busy => e
            raise HttpError.new(409, "#{e.message.sub(/\A./, &:upcase)}.", { "retry-after" => "1" })
          end

          private

          # Empty for all that this process has.
          def levers(given)
            unknown = given - NAMES.keys - [ALL]
            return given.include?(ALL) ? [] : NAMES.values_at(*given) if given.any? && unknown.empty?

            raise HttpError.parameter("lever", unknown.first, [*NAMES.keys, ALL].join(", "))
          end
        end
      end
    end
  end
end
