# frozen_string_literal: true

module Memscope
  module Report
    # How a text for people is set: the characters that it may contain, its columns, and whether headings and severities
    # are highlighted, which adds no information.
    Display = Struct.new(:unicode, :width, :color, keyword_init: true) do
      def initialize(unicode:, width: Page::WIDTH, color: false) = super

      # A terminal has its own width, and colour unless TERM or NO_COLOR (https://no-color.org) refuses it. Any other
      # output is 80 columns of plain text. The variable COLUMNS overrides the width.
      def self.of(io, variables = ENV)
        terminal = io.respond_to?(:tty?) && io.tty?
        color = terminal && variables["NO_COLOR"].to_s.empty? && !["", "dumb"].include?(variables["TERM"].to_s)
        columns = variables["COLUMNS"].to_s[/\A[1-9]\d{0,3}\z/]&.to_i || (columns(io) if terminal) || Page::WIDTH
        new(unicode: encoding(io) == Encoding::UTF_8, color: color,
            width: columns.clamp(Page::MIN_WIDTH, Page::MAX_WIDTH))
      end

      def self.encoding(io) = (io.external_encoding if io.respond_to?(:external_encoding)) || Encoding.default_external

      # Returns nil if the terminal reports no width, or if nothing has loaded io/console.
      def self.columns(io) = (SystemCall.attempt { io.winsize.last.nonzero? } if io.respond_to?(:winsize))
      private_class_method :columns
    end
  end
end
