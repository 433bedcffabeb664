# frozen_string_literal: true

module Memscope
  module CLI
    # What `memscope report` prints, of itself and of a program: the ledger, or other readings by the names of their
    # calls, in the order in which they are given.
    module ReadingOptions
      # The calls that stand for an option, with what the help says of them.
      READINGS = { mappings: "each mapping, with the rows that own it",
                   arenas: "malloc's arenas", size_classes: "how full jemalloc's slabs are, by size",
                   fragmentation: "what is free, by what gives it back",
                   workers: "each process of its Puma cluster" }.freeze
      # The ledger's own.
      DEPTHS = { deep: "walk the chunks of glibc's malloc", shared: "tell what other processes share",
                 objects: "ask objects what they hold through malloc" }.freeze

      private

      def declare_readings(parser)
        READINGS.each { |name, text| parser.on(option(name), "print #{text}, not the ledger") { choose(name) } }
      end

      def declare_depths(parser, names = DEPTHS.keys)
        names.each { |name| parser.on(option(name), DEPTHS.fetch(name)) { @options[name] = true } }
      end

      def option(name) = "--#{name.name.tr('_', '-')}"

      # The names of the readings that were asked for; none for the ledger.
      def chosen = @chosen ||= []

      def choose(name)
        chosen << name unless chosen.include?(name)
      end

      def refuse_depths
        given = @options.key(true)
        refuse("#{option(chosen.first)} takes no #{option(given)}") if chosen.any? && given
      end
    end
  end
end
