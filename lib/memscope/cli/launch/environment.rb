# frozen_string_literal: true

module Memscope
  module Launch
    # Changes to the environment of a program that is to be started. They keep existing values where possible; the notes
    # name the conflicts.
    class Environment
      # The file names of libraries that people preload to serve malloc.
      ALLOCATORS = /\Alib(jemalloc|tcmalloc|mimalloc|hoard|snmallocshim|rpmalloc|scudo)/
      private_constant :ALLOCATORS

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

      # Puts a library before all others in LD_PRELOAD.
      #
      # @param library [String] its soname or path
      # @raise [Refusal] if LD_PRELOAD cannot name it
      def preload(library)
        if library.match?(/[\s:]/)
          raise Refusal, "#{library}: LD_PRELOAD splits paths at spaces and colons; " \
                         "use one without, such as a link"
        end

        rest = preloaded - [library]
        @notes << "LD_PRELOAD: #{library} is put before #{rest.join(':')}" unless rest.empty?
        self["LD_PRELOAD"] = [library, *rest].join(":")
      end

      # Removes allocators from LD_PRELOAD, so that the C library serves malloc.
      def drop_allocators
        dropped, rest = preloaded.partition { |path| File.basename(path).match?(ALLOCATORS) }
        return if dropped.empty?

        @notes << "LD_PRELOAD: #{dropped.join(':')} is removed#{", #{rest.join(':')} is kept" unless rest.empty?}"
        self["LD_PRELOAD"] = rest.join(":")
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

      def preloaded = self["LD_PRELOAD"].split(/[\s:]+/).reject(&:empty?)

      def key(pair) = pair[/\A[^:]*/]
    end

    # The allocator for a program: the one that the command line names, else MEMSCOPE_ALLOCATOR, else jemalloc.
    class AllocatorChoice
      ALLOWED = "jemalloc, glibc, off, or the path of a shared library"
      VARIABLE = "MEMSCOPE_ALLOCATOR"

      # @param option [String, nil] from the command line
      # @param environment [Hash{String => String}]
      # @return [AllocatorChoice]
      # @raise [Invalid]
      def self.read(option, environment)
        return new(option.include?("/") ? File.expand_path(option) : option, "--allocator") if option

        variable = environment[VARIABLE].to_s
        new(variable.empty? ? "jemalloc" : variable, VARIABLE)
      end

      # @return [String] jemalloc, glibc, off, or an absolute path
      attr_reader :name

      # @param name [String]
      # @param source [String] where the name comes from
      # @raise [Invalid]
      def initialize(name, source)
        unless %w[jemalloc glibc off].include?(name) || (name.start_with?("/") && !name.include?("\n"))
          absolute = " (an absolute one)" unless source == "--allocator"
          Field.refuse(source, name, "#{ALLOWED}#{absolute}")
        end
        @name = name
      end

      # @return [Boolean] whether the program starts unchanged
      def off? = name == "off"

      # @return [String, nil] the library to preload; jemalloc's by its soname, which the dynamic linker looks up
      def library = name == "jemalloc" ? "libjemalloc.so.2" : (name if name.start_with?("/"))

      # @return [Boolean] whether the allocator may read MALLOC_CONF
      def configurable? = name != "glibc"

      # @param pairs [String, nil] for MALLOC_CONF
      # @return [Environment] with these pairs, in which the allocator is to serve malloc
      # @raise [Refusal] if LD_PRELOAD cannot name the library
      def environment(pairs)
        Environment.new(ENV).tap do |environment|
          library ? environment.preload(library) : environment.drop_allocators
          environment.configure(pairs) if pairs
        end
      end
    end
  end
end
