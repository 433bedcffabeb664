# frozen_string_literal: true

module Memscope
  module Launch
    # Which allocator a program is to have, and who decided that: the command line, else the environment, else a file
    # of this user or host. Without any of them, jemalloc.
    class AllocatorChoice
      # What can be chosen.
      ALLOWED = "jemalloc, glibc, off, or the path of a shared library"
      # The variable that decides for a process, and the one that names the file.
      VARIABLE = "MEMSCOPE_ALLOCATOR"
      FILE_VARIABLE = "MEMSCOPE_ALLOCATOR_FILE"
      # The host's file.
      HOST_FILE = "/etc/memscope/allocator"

      NAMES = %w[jemalloc glibc off].freeze
      # By soname, so that the dynamic linker finds it where the system has it, and for each architecture its own.
      LIBRARIES = { "jemalloc" => "libjemalloc.so.2" }.freeze
      private_constant :NAMES, :LIBRARIES

      class << self
        # @param option [String, nil] from the command line
        # @param environment [Hash{String => String}]
        # @return [AllocatorChoice]
        # @raise [Misuse] naming what is wrong, where it stands, and what is allowed
        # @raise [Refusal] when the file cannot be read
        def made(option, environment)
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
          [File.join(home, "memscope", "allocator"), HOST_FILE].find do |path|
            path.start_with?("/") && File.exist?(path)
          end
        end

        # One line counts; empty ones and comments do not. Only a regular file is opened: a pipe may never answer.
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
      # @param source [String] who says so
      # @raise [Misuse]
      def initialize(name, source)
        unless NAMES.include?(name) || (name.start_with?("/") && !name.include?("\n"))
          absolute = " (an absolute one)" unless source == "--allocator"
          raise Misuse, "#{source}: given #{name.inspect}, allowed: #{ALLOWED}#{absolute}"
        end
        @name = name
      end

      # @return [Boolean] whether the program is to be started as it is
      def off? = name == "off"

      # @return [String, nil] what is to be preloaded
      def library = LIBRARIES.fetch(name) { name if name.start_with?("/") }

      # @return [Boolean] whether MALLOC_CONF can be meant for it
      def configurable? = name != "glibc"

      # @param variable [String] the name of one
      # @return [Boolean] whether that decides if it serves malloc, or how; a jemalloc's own prefix may stand before
      #   MALLOC_CONF
      def decided_by?(variable)
        variable.start_with?("LD_") || variable == "GLIBC_TUNABLES" ||
          (configurable? && variable.end_with?("MALLOC_CONF"))
      end
    end
  end
end
