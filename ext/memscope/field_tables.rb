# frozen_string_literal: true

# Reads the tables of records and their fields (lib/memscope/value/field_table.rb) with their documentation, to make
# C structs, signatures and documentation from them.
module FieldTables
  Section = Struct.new(:name, :superclass, :options, :doc, :rows)
  Row = Struct.new(:name, :type, :nullable, :options, :doc, :group)

  # A record, a field or the title of a group, and the documentation below it.
  LINE = /^( {2})?(\S.*)\n((?: {3}.*\n)*)/
  private_constant :LINE

  class << self
    # @return [Array<String>] of all tables, in order
    def paths = Dir[File.expand_path("../../lib/memscope/**/*.fields", __dir__)]

    # @return [Array<Section>] of all tables
    def sections = paths.flat_map { |path| read(path) }

    # @param path [String]
    # @return [Array<Section>]
    def read(path)
      group = nil
      File.read(path, encoding: Encoding::UTF_8).gsub(/\\\n */, "").scan(LINE).each_with_object([]) do |line, sections|
        indent, text, doc = line
        if text.start_with?("#") then group = text[2..]
        elsif indent then sections.last.rows << row(text.split, doc, group)
        else
          group = nil
          sections << section(text.split, doc)
        end
      end
    end

    private

    def section(words, doc)
      name, _extends, superclass, *options = words
      Section.new(name, superclass, options(options), doc, [])
    end

    def row(words, doc, group)
      name, type, *options = words
      Row.new(name, type.delete_suffix("?"), type.end_with?("?"), options(options), doc, group)
    end

    # ["sparse", "one_of=v2,v1"] -> {"sparse" => nil, "one_of" => "v2,v1"}
    def options(words) = words.to_h { |word| word.split("=", 2).values_at(0, 1) }
  end
end
