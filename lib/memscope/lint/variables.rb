# frozen_string_literal: true

require_relative "../reading"
require_relative "spelling"

module Memscope
  class Lint < Reading
    # The variables of the environment, and which allocator reads each.
    class Variables
      # glibc's, by the tunable of the same meaning (elf/dl-tunables.list).
      GLIBC = { "arena_max" => "MALLOC_ARENA_MAX", "arena_test" => "MALLOC_ARENA_TEST",
                "mmap_threshold" => "MALLOC_MMAP_THRESHOLD_", "trim_threshold" => "MALLOC_TRIM_THRESHOLD_",
                "mmap_max" => "MALLOC_MMAP_MAX_", "top_pad" => "MALLOC_TOP_PAD_", "perturb" => "MALLOC_PERTURB_",
                "check" => "MALLOC_CHECK_" }.freeze
      # The variable that names tunables of all of glibc.
      TUNABLES = "GLIBC_TUNABLES"
      READERS = [TUNABLES, "MALLOC_TRACE", *GLIBC.values].to_h { |name| [name, :glibc] }
                                                         .update("MALLOC_CONF" => :jemalloc).freeze
      CONF = /\A(.*?)_?MALLOC_?CONF\z/i
      FAMILIES = { /\AMIMALLOC_/i => :mimalloc, /\ATCMALLOC_/ => :tcmalloc }.freeze
      private_constant :READERS, :CONF, :FAMILIES

      # @param evidence [Evidence]
      def initialize(evidence)
        @evidence = evidence
        @serving = evidence.allocator.name
        @given = evidence.given.transform_keys(&:name)
      end

      # @return [String, nil] the value of a variable that is given
      def [](name) = @given[name]

      # @return [Hash{String => String}] what was meant for a variable that is not given, by that variable's name
      def meant
        misspelt.filter_map { |name, value| [right(name), value] unless @given.key?(right(name)) }.to_h
      end

      # @param recommended [String, nil] what to paste for variables that were meant for this allocator
      # @return [Array<Problem>] those that do not do what their names promise
      def problems(recommended)
        return [] if @serving == :unknown
        return ignored(recommended) if @evidence.secure?

        [*misspelt.keys.map { |name| misspelling(name, recommended) },
         *@given.keys.filter_map { |name| foreign(name, reader(name)) }]
      end

      private

      # nil for a name that no allocator reads, as MALLOC_CONF where this jemalloc's variable is another.
      def reader(name)
        return (:jemalloc if name == @evidence.conf_variable) if @serving == :jemalloc && name.match?(CONF)

        READERS[name] || FAMILIES.find { |form, _allocator| name.match?(form) }&.last
      end

      # Those that nobody reads, near enough to one that this or another allocator reads.
      def misspelt
        @misspelt ||= @given.select { |name, _value| !reader(name) && !private_copy?(name) && right(name) }
      end

      # The variable that was meant. A prefix before MALLOC_CONF is that of another build of jemalloc.
      def right(name)
        return @evidence.conf_variable || "MALLOC_CONF" if name.match?(CONF)

        Spelling.slip(name, READERS.keys)
      end

      # "_rjem_" reads _RJEM_MALLOC_CONF.
      def private_copy?(name)
        @evidence.allocator.others.any? { |other| name.casecmp?("#{other.prefix}MALLOC_CONF") && !other.prefix.empty? }
      end

      def misspelling(name, recommended)
        right = right(name)
        prefixed = name.match?(CONF)
        ours = reader(right) == @serving
        text = "#{name}: no allocator here reads it; " \
               "#{prefixed ? "this jemalloc's variable is #{right}" : "#{right} is meant"}"
        text = "#{name}: nothing here reads it, and #{right}, of #{reader(right)}, neither" unless ours
        Problem.capture({ id: prefixed ? :wrong_prefix : :misspelt_variable, severity: :warning, text: text,
                          replacement: ours ? recommended : "unset #{name}" })
      end

      # A variable of another allocator. Who sets MALLOC_CONF believes that jemalloc serves; MALLOC_ARENA_MAX is often
      # set for whichever allocator there is.
      def foreign(name, reader)
        return if reader.nil? || reader == @serving
        return foreign_tunables if name == TUNABLES

        wanted = reader != :glibc
        text = "#{name}: #{reader} reads it, and #{@serving} serves malloc#{idle(reader)}"
        text += "; to start a program under jemalloc: memscope exec -- COMMAND" if reader == :jemalloc
        Problem.capture({ id: :other_allocator, severity: wanted ? :warning : :info, text: text,
                          replacement: reader == :jemalloc ? "memscope exec -- COMMAND" : "unset #{name}" })
      end

      # The dynamic linker reads the rest of them whatever serves malloc.
      def foreign_tunables
        malloc, others = @given[TUNABLES].split(":").partition { |part| part.start_with?("glibc.malloc.") }
        return if malloc.empty?

        Problem.capture({ id: :other_allocator, severity: :info,
                          text: "#{TUNABLES}: #{malloc.join(':')}: for glibc's malloc, and #{@serving} serves malloc",
                          replacement: others.empty? ? "unset #{TUNABLES}" : "#{TUNABLES}=#{others.join(':')}" })
      end

      def idle(reader)
        other = @evidence.allocator.others.find { |candidate| candidate.name == reader && candidate.prefix.empty? }
        ", though #{other.path} is loaded" if other
      end

      def ignored(recommended)
        @given.keys.select { |name| reader(name) == @serving }.map do |name|
          Problem.capture({ id: :ignored_environment, severity: :warning, replacement: recommended,
                            text: "#{name}: ignored, since the program runs set-user-ID or with file capabilities" })
        end
      end
    end
    private_constant :Variables
  end
end
