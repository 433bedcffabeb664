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
          raise Refusal, "#{library}: LD_PRELOAD splits paths at spaces and colons; use one without, such as a link"
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

    # The allocator for a program: from the command line, else the environment, else a file of this user or host, else
    # jemalloc.
    class AllocatorChoice
      ALLOWED = "jemalloc, glibc, off, or the path of a shared library"
      # The variable that holds the choice, and the variable that names a file which holds it.
      VARIABLE = "MEMSCOPE_ALLOCATOR"
      FILE_VARIABLE = "MEMSCOPE_ALLOCATOR_FILE"
      # The host's file.
      HOST_FILE = "/etc/memscope/allocator"

      class << self
        # @param option [String, nil] from the command line
        # @param environment [Hash{String => String}]
        # @return [AllocatorChoice]
        # @raise [Misuse] naming the invalid value, its source, and the valid ones
        # @raise [Refusal] if the file cannot be read
        def read(option, environment)
          return new(option.include?("/") ? File.expand_path(option) : option, "--allocator") if option

          variable = environment[VARIABLE].to_s
          return new(variable, VARIABLE) unless variable.empty?

          path = file(environment)
          path ? new(content(path), path) : new("jemalloc", "default")
        end

        private

        def file(environment)
          named = environment[FILE_VARIABLE].to_s
          return named unless named.empty?

          home = environment["XDG_CONFIG_HOME"].to_s
          home = File.join(environment["HOME"].to_s, ".config") unless home.start_with?("/")
          [File.join(home, "memscope/allocator"), HOST_FILE].find { |path| path.start_with?("/") && File.exist?(path) }
        end

        # The file's content without empty lines and comments. Opens regular files only: opening a FIFO may block
        # forever.
        def content(path)
          stat = File.stat(path)
          raise Refusal, "#{path}: given a #{stat.ftype}, allowed: a regular file" unless stat.file?

          lines = File.readlines(path, chomp: true).map { |line| line.scrub.sub(/\A\s*#.*/, "").strip }
          lines.reject(&:empty?).join("\n")
        rescue SystemCallError => e
          raise Refusal, "#{path}: #{e.class.new.message}"
        end
      end

      # @return [String] jemalloc, glibc, off, or an absolute path
      attr_reader :name

      # @param name [String]
      # @param source [String] where the name comes from
      # @raise [Misuse]
      def initialize(name, source)
        unless %w[jemalloc glibc off].include?(name) || (name.start_with?("/") && !name.include?("\n"))
          absolute = " (an absolute one)" unless source == "--allocator"
          raise Misuse, "#{source}: given #{name.inspect}, allowed: #{ALLOWED}#{absolute}"
        end
        @name = name
      end

      # @return [Boolean] whether the program starts unchanged
      def off? = name == "off"

      # @return [String, nil] the library to preload; jemalloc's by its soname, so that the dynamic linker finds the
      #   system's library for the program's architecture
      def library = name == "jemalloc" ? "libjemalloc.so.2" : (name if name.start_with?("/"))

      # @return [Boolean] whether the allocator may read MALLOC_CONF
      def configurable? = name != "glibc"

      # @param variable [String] the name of an environment variable
      # @return [Boolean] whether the variable can affect which library serves malloc, or this allocator's settings;
      #   some builds of jemalloc put a prefix before MALLOC_CONF
      def decided_by?(variable)
        variable.start_with?("LD_") || variable == "GLIBC_TUNABLES" ||
          (configurable? && variable.end_with?("MALLOC_CONF"))
      end
    end
  end
end
