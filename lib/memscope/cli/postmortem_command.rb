# frozen_string_literal: true

module Memscope
  module CLI
    # `memscope postmortem`: lists the processes whose black boxes have outlived them. Explains the only one, or the one
    # that is named.
    class PostmortemCommand < Command
      declare most: 1

      private

      def perform
        named = @given[:pid] || @operands.first
        found = Boxes.read(named)
        found = found.last(1) if @given[:pid]
        failure(:no_box, pid: named) if @given[:pid] && found.empty?
        return deliver { |display| list(found, display) } unless found.one? || @given[:json]

        deliver_readings(found, **@given.slice(:markdown))
      rescue Unavailable, Invalid, Sockets::Refused => e
        failure(e.message)
      rescue SystemCallError => e
        failure(:no_boxes, directory: named, why: e.class.new.message)
      end

      def list(deaths, display)
        return "#{WORDS[:no_deaths]}\n" if deaths.empty?

        page = Report::Page.new(**display.to_h)
        page.encoded("#{Report.deaths(page, deaths).to_a.join("\n")}\n")
      end
    end
  end
end
