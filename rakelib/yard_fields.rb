# frozen_string_literal: true

require "yard"
require_relative "../ext/memscope/field_tables"

# Documents the fields of records for YARD, from their tables.
module YardFields
  # The YARD types of a field's values, unless its documentation begins with others.
  TYPES = {
    "bytes" => "Integer", "signed_bytes" => "Integer", "count" => "Integer", "integer" => "Integer",
    "number" => "Float", "string" => "String", "text" => "String", "symbol" => "Symbol", "id" => "Symbol, Integer",
    "boolean" => "Boolean", "time" => "Time", "hash" => "Hash{Symbol => Object}",
    "numbers" => "Hash{Symbol => Numeric}", "sizes" => "Hash{Symbol => Integer}",
    "tables" => "Hash{Symbol => Hash{Symbol => Integer}}", "list" => "Array<Object>", "integers" => "Array<Integer>",
    "strings" => "Array<String>", "shares" => "Array<Array<Integer>>", "samples" => "Array<Integer, nil>",
    "any" => "Object", "sentences" => "Hash{Symbol => String}"
  }.freeze

  class << self
    def document
      FieldTables.paths.each { |path| FieldTables.read(path).each { |section| add(section, path) } }
    end

    # @return [String] "[Integer, nil] the effective limit"
    def documentation(section, row)
      doc = row.doc.split.join(" ")
      return doc if doc.start_with?("[")

      type = row.type.delete("[]")
      type = TYPES.fetch(type) { short_name(type, section.name) }
      type = "Array<#{type}>" if row.type.start_with?("[")
      "[#{type}#{', nil' if row.nullable}] #{doc}".rstrip
    end

    private

    def add(section, path)
      record = YARD::CodeObjects::ClassObject.new(:root, "Memscope::#{section.name}")
      record.superclass = YARD::CodeObjects::Proxy.new(record.namespace, "Memscope::#{section.superclass}")
      record.add_file(path)
      record.docstring = section.doc.gsub(/^ {4}/, "")
      section.rows.each { |row| attribute(record, row, documentation(section, row), path) }
    end

    def attribute(record, row, doc, path)
      reader = YARD::CodeObjects::MethodObject.new(record, row.name) do |method|
        method.add_file(path)
        method.docstring = "@return #{doc}"
        method.group = row.group
      end
      record.attributes[:instance][row.name.to_sym] = { read: reader, write: nil }
    end

    # The name of a record as code in another one would write it: "Row" for HeapGraph::Growth::Row in Growth.
    def short_name(name, scope)
      prefix = "#{scope}::"
      prefix = prefix.sub(/\w+::\z/, "") until name.start_with?(prefix)
      name.delete_prefix(prefix)
    end
  end
end

YARD::Parser::SourceParser.before_parse_list { YardFields.document }
