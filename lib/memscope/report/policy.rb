# frozen_string_literal: true

module Memscope
  module Report
    # A decision of a policy: when, what to do with which worker, and why.
    class DecisionPage < ReadingPage
      private

      def title
        action = @reading.action == :none ? "nothing" : @reading.action.name.tr("_", " ")
        threads = "to #{@reading.threads}" if @reading.threads
        "#{@reading.at.strftime('%F %T')} UTC  #{[action, *@reading.worker&.title, *threads].join(' ')}"
      end

      def sections = [@page.wrapped(@reading.reason)]

      def footer = nil
    end
  end
end
