# frozen_string_literal: true

module Memscope
  module Launch
    # Changes to the environment of a program before its start. They keep existing values where possible. The notes name
    # the values that change.
    class Environment
      # jemalloc's soname, which the dynamic linker looks up.
      JEMALLOC = "libjemalloc.so.2"
      # The paths of libraries that people preload to serve malloc.
      ALLOCATORS = %r{(\A|/)lib(jemalloc|tcmalloc|mimalloc|hoard|snmallocshim|rpmalloc|scudo)[^/]*\z}

      # The changes as Process.exec takes them (nil removes a variable), and the notes.
      attr_reader :changes, :notes

      def initialize(given)
        @given = given
        @changes = {}
        @notes = []
      end

      # The value that a variable will have, or "".
      def [](name) = @changes.fetch(name) { @given[name] }.to_s

      # "" removes the variable.
      def []=(name, value)
        @changes[name] = (value unless value.empty?)
      end

      # Has an allocator serve malloc: puts its library before all others in LD_PRELOAD, or removes other allocators
      # from LD_PRELOAD, so that the C library does.
      #
      # @raise [Refusal] if LD_PRELOAD cannot name the library
      def serve(allocator)
        library = allocator == "jemalloc" ? JEMALLOC : allocator
        raise Refusal, WORDS.fill(:not_preloadable, library: library) if library.match?(/[\s:]/)

        given = self["LD_PRELOAD"].split(/[\s:]+/).reject(&:empty?)
        replace("LD_PRELOAD", allocator == "glibc" ? given.grep_v(ALLOCATORS) : [library, *given - [library]], ":")
      end

      # Merges pairs into MALLOC_CONF, where they replace existing pairs with the same keys.
      def configure(pairs)
        all = [*self["MALLOC_CONF"].split(","), *pairs.split(",")]
        replace("MALLOC_CONF", all.to_h { |pair| [pair[/\A[^:]*/], pair] }.values, ",")
      end

      private

      def replace(name, values, separator)
        before = self[name]
        after = values.join(separator)
        return if before == after

        self[name] = after
        note = after.empty? ? :variable_unset : :variable_changes
        @notes << WORDS.fill(note, name: name, before: before, after: after) unless before.empty?
      end
    end
  end
end
