# frozen_string_literal: true

require_relative "../reading"
require_relative "spelling"
require_relative "value_text"

module Memscope
  class Lint < Reading
    # A text as GLIBC_TUNABLES has it, "glibc.malloc.arena_max=2:glibc.rtld.optional_static_tls=4096": what is wrong in
    # it, and what was meant by it.
    class TunablesText
      # One tunable. namespace: "malloc" or another part of glibc.
      Part = Struct.new(:namespace, :name, :value) do
        # @return [Boolean] whether it is no business of malloc
        def foreign? = namespace != "malloc"

        # @return [String]
        def to_s = "glibc.#{namespace}.#{name}=#{value}"
      end

      # elf/dl-tunables.list of glibc 2.26 to 2.43, and of its ports.
      NAMESPACES = %w[malloc rtld mem cpu elision pthread gmon tune].freeze
      private_constant :NAMESPACES

      # @param text [String]
      # @param names [Array<String>] of malloc's tunables
      def initialize(text, names)
        @text = text
        @names = names
      end

      # @return [Array<Array(Symbol, String)>] of each problem: id, what
      def problems
        @text.split(":").reject(&:empty?).flat_map do |part|
          name, value = part.split("=", 2)
          next unknown(name) if value && !value.match?(/[=,;\s]/)

          [[:malformed, "#{part.inspect}: it takes name=value with a colon between two"]]
        end
      end

      # @return [Array<Part>] separated by anything that people take for a separator
      def meant
        tokens = @text.delete("\"'").gsub(/\s*([:=,;])\s*/, '\1').split(/[:,;\s]+/)
        tokens.filter_map { |token| part(*token.split(/=+/, 2)) }
      end

      private

      def unknown(name)
        glibc, namespace, option = name.split(".", 3)
        foreign = NAMESPACES.include?(namespace) && namespace != "malloc"
        return [] if glibc == "glibc" && (foreign || (namespace == "malloc" && @names.include?(option)))

        meant = part(name, "")
        hint = meant && "; #{meant.to_s.delete_suffix('=')} is meant"
        [[:unknown_option, "#{name}: glibc has no such tunable#{hint}"]]
      end

      # nil where it cannot be told.
      def part(name, value = nil)
        *before, option = name.to_s.split(".")
        return if option.nil? || value.nil? || value.include?("=")

        namespace = namespace(before, option)
        option = Spelling.meant(option, @names) if namespace == "malloc" && !@names.include?(option)
        Part.new(namespace, option, value) if namespace && option
      end

      # "glibc.arena_max" lacks one, and "arena_max" is malloc's too.
      def namespace(before, option)
        name = before.last || "malloc"
        return name if NAMESPACES.include?(name)

        name == "glibc" && @names.include?(option) ? "malloc" : Spelling.meant(name, NAMESPACES)
      end
    end
    private_constant :TunablesText
  end
end
