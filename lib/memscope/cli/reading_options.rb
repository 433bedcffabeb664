# frozen_string_literal: true

module Memscope
  module CLI
    # What `memscope report` prints, of itself and of a program: the ledger, or one reading by the name of its call.
    module ReadingOptions
      # The calls that stand for an option, with what the help says of them.
      READINGS = { mappings: "each mapping, with the rows that own it" }.freeze
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

      def choose(name)
        refuse("#{option(name)} and #{option(@reading)} exclude each other") if @reading && @reading != name
        @reading = name
      end

      def refuse_depths
        given = @options.key(true)
        refuse("#{option(@reading)} takes no #{option(given)}") if @reading && given
      end
    end
  end
end
