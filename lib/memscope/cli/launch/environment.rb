# frozen_string_literal: true

module Memscope
  module Launch
    # Changes to the environment of a program that is to be started. They keep existing values where possible; the notes
    # name the conflicts.
    class Environment
      # jemalloc's soname, which the dynamic linker looks up.
      JEMALLOC = "libjemalloc.so.2"
      # The file names of libraries that people preload to serve malloc.
      ALLOCATORS = /\Alib(jemalloc|tcmalloc|mimalloc|hoard|snmallocshim|rpmalloc|scudo)/
      private_constant :JEMALLOC, :ALLOCATORS

      # @return [Hash{String => String, nil}] as Process.exec takes them; nil removes a variable
      attr_reader :changes
      # @return [Array<String>]
      attr_reader :notes

      # @param given [Hash{String => String}]
      def initialize(given)
        @given = given
        @changes = {}
        @notes = []
      end

      # @return [String] the value that a variable will have, or ""
      def [](name) = @changes.fetch(name) { @given[name] }.to_s

      # @param value [String] "" removes the variable
      def []=(name, value)
        @changes[name] = (value unless value.empty?)
      end

      # Has an allocator serve malloc: puts its library before all others in LD_PRELOAD, or removes other allocators
      # from LD_PRELOAD, so that the C library does.
      #
      # @param allocator [String] jemalloc, glibc, or the path of a library
      # @raise [Refusal] if LD_PRELOAD cannot name the library
      def serve(allocator)
        return drop_allocators if allocator == "glibc"

        library = allocator == "jemalloc" ? JEMALLOC : allocator
        if library.match?(/[\s:]/)
          raise Refusal, "#{library}: LD_PRELOAD splits paths at spaces and colons; " \
                         "use one without, such as a link"
        end

        rest = preloaded - [library]
        @notes << "LD_PRELOAD: #{library} is put before #{rest.join(':')}" unless rest.empty?
        self["LD_PRELOAD"] = [library, *rest].join(":")
      end

      # Merges pairs into MALLOC_CONF; they replace existing pairs with the same keys.
      #
      # @param pairs [String] as in MALLOC_CONF
      def configure(pairs)
        given = pairs.split(",")
        keys = given.map { |pair| key(pair) }
        replaced, kept = self["MALLOC_CONF"].split(",").partition { |pair| keys.include?(key(pair)) }
        replaced -= given
        @notes << "MALLOC_CONF: #{pairs} replaces #{replaced.join(',')}" unless replaced.empty?
        @notes << "MALLOC_CONF: #{kept.join(',')} is kept" unless kept.empty?
        self["MALLOC_CONF"] = [*kept, *given].join(",")
      end

      private

      def drop_allocators
        dropped, rest = preloaded.partition { |path| File.basename(path).match?(ALLOCATORS) }
        return if dropped.empty?

        @notes << "LD_PRELOAD: #{dropped.join(':')} is removed#{", #{rest.join(':')} is kept" unless rest.empty?}"
        self["LD_PRELOAD"] = rest.join(":")
      end

      def preloaded = self["LD_PRELOAD"].split(/[\s:]+/).reject(&:empty?)

      def key(pair) = pair[/\A[^:]*/]
    end
  end
end
