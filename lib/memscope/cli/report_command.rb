# frozen_string_literal: true

require_relative "copying"

module Memscope
  module CLI
    # `memscope report`: where the memory of a process is. `memscope report -- COMMAND`: where the memory of a Ruby
    # program is when it ends.
    class ReportCommand < Command
      include Copying

      # The options of the ledger.
      DEPTHS = %i[deep shared objects garbage].freeze
      # The readings other than the ledger, by the calls that read them.
      READINGS = %i[mappings arenas size_classes workers].freeze

      declare program: [:every], exclusive: READINGS.map { |name| [name, *DEPTHS, :gc] }

      private

      def perform
        readings = read
        note_own
        deliver_readings(readings, **view)
        status(*readings)
      end

      def start = hand_over("report", **@given.slice(:every, :json), calls: calls, view: view)

      # Calls of Memscope to report, with their options.
      def calls
        chosen = @given.keys & READINGS # in the order of the command line
        return chosen.to_h { |name| [name, {}] } if chosen.any?

        { ledger: program? ? { deep: true, **depths } : depths }
      end

      # Options of the reports.
      def view = @given.slice(:markdown)

      def depths = @given.slice(*DEPTHS, :gc)

      def read = calls.map { |name, options| name == :ledger ? asking { ledger } : ask(name, **options) }

      def status(*readings) = readings.all?(&:known?) ? FINE : INPUT_OUTPUT

      # If the process does not listen, the kernel's view replaces the ledger, unless the ledger has options.
      def ledger
        other? ? answer(:ledger, **depths) : Memscope.ledger(**depths)
      rescue Client::Unreachable => e
        raise if @given.key?(:socket) || depths.any? || e.why == :gone

        ExternalProcess.read(@given[:pid]).tap { say(:kernels_view, why: e.message) }
      end
    end
  end
end
