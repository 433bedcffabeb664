# frozen_string_literal: true

module Memscope
  module Launch
    # The changes to an environment for a program that is to be started. What is there already is kept where it can be,
    # and the notes say what met what.
    class Environment
      # Libraries that are preloaded to serve malloc, by their file's name.
      ALLOCATORS = /\Alib(jemalloc|tcmalloc|mimalloc|hoard|snmallocshim|rpmalloc|scudo)/
      private_constant :ALLOCATORS

      # @return [Hash{String => String, nil}] as Process.exec takes them; nil removes
      attr_reader :changes
      # @return [Array<String>]
      attr_reader :notes

      # @param given [Hash{String => String}]
      def initialize(given)
        @given = given
        @changes = {}
        @notes = []
      end

      # @return [String] the value that a variable will have; empty when none
      def [](name) = @changes.fetch(name) { @given[name] }.to_s

      # @param value [String] removed when empty
      def []=(name, value)
        @changes[name] = (value unless value.empty?)
      end

      # Puts a library in front of what is preloaded.
      #
      # @param library [String] its soname or path
      # @raise [Refusal] when LD_PRELOAD cannot name it
      def preload(library)
        if library.match?(/[\s:]/)
          raise Refusal, "#{library}: LD_PRELOAD ends a path at a space or a colon; give one without, as a link to it"
        end

        rest = preloaded - [library]
        @notes << "LD_PRELOAD: #{library} is put in front of #{rest.join(':')}" unless rest.empty?
        self["LD_PRELOAD"] = [library, *rest].join(":")
      end

      # Leaves out the allocators that are preloaded, so that the C library's own serves malloc.
      def drop_allocators
        dropped, rest = preloaded.partition { |path| File.basename(path).match?(ALLOCATORS) }
        return if dropped.empty?

        @notes << "LD_PRELOAD: #{dropped.join(':')} is left out#{", #{rest.join(':')} stays" unless rest.empty?}"
        self["LD_PRELOAD"] = rest.join(":")
      end

      # Merges pairs into MALLOC_CONF; of two with the same key the given one counts.
      #
      # @param pairs [String] as in MALLOC_CONF
      def configure(pairs)
        given = pairs.split(",")
        keys = given.map { |pair| key(pair) }
        replaced, kept = self["MALLOC_CONF"].split(",").partition { |pair| keys.include?(key(pair)) }
        replaced -= given
        @notes << "MALLOC_CONF: #{pairs} takes the place of #{replaced.join(',')}" unless replaced.empty?
        @notes << "MALLOC_CONF: #{kept.join(',')} stays" unless kept.empty?
        self["MALLOC_CONF"] = [*kept, *given].join(",")
      end

      private

      def preloaded = self["LD_PRELOAD"].split(/[\s:]+/).reject(&:empty?)

      def key(pair) = pair[/\A[^:]*/]
    end
  end
end
