# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope census` counts a process's objects by class, or their growth since an earlier census.
    # `memscope census -- COMMAND` counts a Ruby program's objects by class when it ends.
    class CensusCommand < ReportCommand
      declare limits: { by: Limit.one_of(Census::GROUPINGS.keys) }, program: [:every], process: %i[since private],
              defaults: { by: :class, top: Report::ListPage::VIEW[:limit] }

      private

      def read
        since = saved(Census, :since)
        super.map { |reading| since ? reading - since : reading }
      end

      def calls = { census: @given.slice(:gc, :private) }

      def view = { **super, by: @given[:by], limit: @given[:top] }
    end
  end
end
