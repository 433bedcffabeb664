# frozen_string_literal: true

module Memscope
  # A table of records and their fields: cgroup.fields beside cgroup.rb. It is the only place that names a field with
  # its type and meaning. From it come Ruby's readers, the extension's structs (ext/memscope/record_structs.rb),
  # signatures (rake sig) and documentation (rakelib/yard_fields.rb, rake docs:fields).
  #
  #   Cgroup < Reading
  #     version symbol one_of=v2,v1,hybrid,none
  #       :v2; :v1; :hybrid if the process is in a v2 group but its memory controller is v1; :none
  #     limit_bytes bytes?
  #       the effective limit
  #     pressure tables? counters=total_us
  #       [Hash{Symbol => Hash{Symbol => Numeric}}] memory.pressure
  #
  # A record's name is at the margin, with its class. struct=name requests a C struct, `private` keeps the record out of
  # docs/fields.md. A field is indented by two spaces: its name, its type as of Field ("?" if it may be nil) and its
  # options, as of Record.field. Three are about the struct: `by_hand` keeps the field out of it, `interned` makes it
  # the number of a text in a table of names (engine/graph/names.h), and `rounded` a double. from=FILE:KEY,FILE:KEY says
  # to the extension where the kernel prints the figure. Types that are records are named from Memscope. A backslash
  # continues a line. More indentation is documentation, which begins with the YARD type if the field's type does not
  # imply it. A line that begins with "#" has the title of a group of fields, or none, to end a group.
  # @api private
  module FieldTable
    # The line of a record or a field: not one of documentation, nor the title of a group.
    DECLARING = /^(?: {2}[^ #\n]|[^ \n]).*/
    NO_OPTIONS = {}.freeze

    class << self
      # Makes the records of a table, and their fields.
      def declare(path)
        lines = lines(path)
        lines.each { |line| make(*line.split) unless line.start_with?(" ") }
        record = nil
        lines.each do |line|
          if line.start_with?(" ") then add(record, line)
          else record = Memscope.const_get(line[0, line.index(" ")])
          end
        end
      end

      private

      # The records and fields. Creates hardly an object but the lines: a process that loads memscope keeps their
      # memory.
      def lines(path) = File.binread(path).gsub(/\\\n *| from=\S+/, "").scan(DECLARING)

      def make(name, _extends, superclass, *)
        *outer, name = name.split("::")
        namespace = outer.empty? ? Memscope : Memscope.const_get(outer.join("::"))
        return if namespace.const_defined?(name, false)

        namespace.const_set(name, Class.new(Memscope.const_get(superclass)))
      end

      # Takes the line apart where it is, which leaves less memory behind than `split`.
      def add(record, line)
        name = line.lstrip!.slice!(0, line.index(" "))
        options = line.index(" ", 1)&.then { |at| options(line.slice!(at..)) }
        nullable = !line.delete_suffix!("?").nil?
        record.field(name.to_sym, type(line.lstrip!), nullable, options || NO_OPTIONS)
      end

      def type(word)
        return [Memscope.const_get(word[1..-2])] if word.start_with?("[")

        word.match?(/\A[A-Z]/) ? Memscope.const_get(word) : word.to_sym
      end

      # "sparse one_of=v2,v1" -> {sparse: true, one_of: [:v2, :v1]}
      def options(words)
        words.split.each_with_object({}) do |word, options|
          values = word.index("=")&.then { |at| list(word.slice!(at, word.size).delete_prefix("=")) }
          options[word.to_sym] = values || true
        end
      end

      # Symbols or Integers, or those of a constant, as in counters=Native::JEMALLOC_COUNTERS.
      def list(values)
        return Memscope.const_get(values) if values.include?("::")

        values.split(",").map { |value| value.match?(/\A\d/) ? value.to_i : value.to_sym }.freeze
      end
    end
  end
end
