# frozen_string_literal: true

module Memscope
  module Web
    # The five pages. Each is the scope of its templates.
    # @api private
    module Pages
      # The allocator that serves malloc, and the layout of malloc's memory and of Ruby's heap.
      # @api private
      class Allocator < Page
        READINGS = %i[allocator arenas size_classes fragmentation ruby_heap mappings].freeze
        # For each reading but the first: a heading, and a sentence.
        WORDS = Words.beside(__FILE__)
        # Rows of the table of mappings. JSON and text have all.
        MAX_MAPPINGS = 50

        (READINGS - %i[size_classes]).each { |name| define_method(name) { read(name) } }

        # @return [SizeClasses] of all arenas, or with arena=N of one
        def size_classes = read(:size_classes, arena: arena)

        def to_s(**) = READINGS.drop(1).map { |name| public_send(name).to_s(unicode: true) }.join("\n\n")

        # @return [Array<Array(Symbol, String, String, Reading, Report::ReadingPage)>] name, heading and sentence of
        #   each reading that has something to show
        def sections
          READINGS.drop(1).filter_map do |name|
            reading = public_send(name)
            page = Report.page(reading, **(name == :mappings ? { limit: MAX_MAPPINGS } : {}))
            next if page.parts.empty? && name == :size_classes

            [name, WORDS["heading.#{name}"], WORDS["sentence.#{name}"], reading, page]
          end
        end

        private

        def arena
          given = @request.query["arena"]&.last.to_s
          return if given.empty?
          return given.to_i if given.match?(/\A\d{1,4}\z/)

          raise HttpError.parameter("arena", given, "the number of an arena")
        end
      end
    end
  end
end
