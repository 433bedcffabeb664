# frozen_string_literal: true

module Memscope
  class Lint < Reading
    # The environment variables that an allocator reads, or whose names resemble the name of such a variable.
    #
    # @api private
    class Variables
      # glibc's variables, by the tunable of the same meaning (elf/dl-tunables.list).
      GLIBC = { "arena_max" => "MALLOC_ARENA_MAX", "arena_test" => "MALLOC_ARENA_TEST",
                "mmap_threshold" => "MALLOC_MMAP_THRESHOLD_", "trim_threshold" => "MALLOC_TRIM_THRESHOLD_",
                "mmap_max" => "MALLOC_MMAP_MAX_", "top_pad" => "MALLOC_TOP_PAD_", "perturb" => "MALLOC_PERTURB_",
                "check" => "MALLOC_CHECK_" }.freeze
      # The variable of all of glibc's tunables.
      TUNABLES = "GLIBC_TUNABLES"
      OF_GLIBC = [TUNABLES, "MALLOC_TRACE", *GLIBC.values].freeze
      # The variable of some build of jemalloc, or a misspelling of it; builds differ in the prefix.
      CONF = /\A(.*?)_?MALLOC_?CONF\z/i

      # @param inputs [Inputs]
      def initialize(inputs)
        @inputs = inputs
        @serving = inputs.allocator.name
        @conf = inputs.conf_variable || "MALLOC_CONF"
        @given = inputs.variables.reject { |_name, value| value.empty? }.transform_keys(&:name)
      end

      # @return [String, nil] the value of a variable; nil if it is not set or empty
      def [](name) = @given[name]

      # @return [Array<Array>] id, severity, text and replacement of a Problem for each variable that does not do what
      #   its name promises
      def problems
        return [] if @serving == :unknown

        @given.keys.filter_map do |name|
          case reader(name)
          when nil then misspelling(name)
          when @serving then ignored(name) if @inputs.secure?
          else foreign(name, reader(name))
          end
        end
      end

      private

      # The allocator that reads a name; nil if none does, as for MALLOC_CONF if this jemalloc reads another variable.
      def reader(name)
        return :jemalloc if name == @conf
        return :glibc if OF_GLIBC.include?(name)

        { /\Amimalloc_/i => :mimalloc, /\Atcmalloc_/i => :tcmalloc }.find { |form, _reader| name.match?(form) }&.last
      end

      def misspelling(name)
        right = name.match?(CONF) ? @conf : nearest(name)
        return if right.nil? || private_copy?(name)

        whose = ", a variable of #{reader(right)}, but #{@serving} serves malloc" unless reader(right) == @serving
        problem(:misspelt_variable, :warning, name, "no allocator here reads it; did you mean #{right}#{whose}?")
      end

      # The name that differs in few characters: the variable may well be unrelated.
      def nearest(name)
        return unless defined?(DidYouMean::Levenshtein)

        OF_GLIBC.find { |known| DidYouMean::Levenshtein.distance(name.upcase, known) <= 2 }
      end

      # Whether a jemalloc with a prefix reads the variable: one with the prefix "_rjem_" reads _RJEM_MALLOC_CONF.
      def private_copy?(name)
        @inputs.allocator.others.any? { |other| name.casecmp?("#{other.prefix}MALLOC_CONF") && !other.prefix.empty? }
      end

      # A variable of another allocator. Whoever sets MALLOC_CONF expects jemalloc to serve malloc; MALLOC_ARENA_MAX is
      # often set for whichever allocator there is. The dynamic linker reads GLIBC_TUNABLES too.
      def foreign(name, reader)
        return if name == TUNABLES && !@given[name].include?("glibc.malloc.")

        text = "#{reader} reads it, but #{@serving} serves malloc"
        return problem(:other_allocator, reader == :glibc ? :info : :warning, name, text) unless reader == :jemalloc

        [:other_allocator, :warning, "#{name}: #{text}; memscope exec -- COMMAND starts a program under jemalloc",
         "memscope exec -- COMMAND"]
      end

      def ignored(name)
        problem(:ignored_environment, :warning, name,
                "ignored, because the program runs set-user-ID or with file capabilities")
      end

      def problem(id, severity, name, text) = [id, severity, "#{name}: #{text}", "unset #{name}"]
    end
    private_constant :Variables
  end
end
