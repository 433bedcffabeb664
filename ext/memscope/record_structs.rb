# frozen_string_literal: true

# Writes record_structs.h: a C struct for each record with struct=name in its table's heading, with a member for each
# field that C can hold (no list, Hash or record, and nothing that is marked `by_hand`), and a description of its
# members. Also the places of figures that the kernel prints.
# The Makefile runs it in its directory.

require "fileutils"
require_relative "field_tables"

# The text of record_structs.h.
module RecordStructs
  # By the type of a field: its type in C, and the kind of member (engine/base/record.h).
  NUMBER = %w[uint64_t NUMBER].freeze
  SIGNED = %w[int64_t SIGNED].freeze
  TEXT = ["struct memscope_text", "TEXT"].freeze
  # By an option of a field.
  OF_OPTION = { "interned" => %w[uint64_t NAME], "rounded" => %w[double ROUNDED] }.freeze
  MEMBERS = {
    "bytes" => NUMBER, "count" => NUMBER, "signed_bytes" => SIGNED, "integer" => SIGNED, "time" => SIGNED,
    "number" => %w[double REAL], "boolean" => %w[int64_t BOOLEAN], "string" => TEXT, "text" => TEXT,
    "symbol" => ["struct memscope_text", "SYMBOL"]
  }.freeze

  class << self
    # @param sections [Array<FieldTables::Section>]
    # @return [String]
    def generate(sections = FieldTables.sections)
      records = sections.select { |section| section.options["struct"] }
      <<~C
        /* Made by record_structs.rb from the tables in lib/memscope. */
        #pragma once

        #include "base/record.h"

        #{records.map { |section| declaration(section) }.join("\n")}
        #define MEMSCOPE_RECORDS(RECORD) #{records.map { |section| "RECORD(#{section.options['struct']})" }.join(' ')}
        #define EXTERN(name) extern const struct memscope_record memscope_##name##_record; \
                             extern const struct memscope_##name memscope_##name##_unknown;
        MEMSCOPE_RECORDS(EXTERN)
        #undef EXTERN

        #{records.map { |section| members_macro(section) }.join}
        #{sections.map { |section| figures_macro(section) }.join}
      C
    end

    # Writes record_structs.h, unless it is current: into tmp/structs for compilers that do not run the Makefile.
    #
    # @return [String] its directory
    def write(directory = File.expand_path("../../tmp/structs", __dir__))
      path = File.join(directory, "record_structs.h")
      text = generate
      FileUtils.mkdir_p(directory)
      File.write(path, text) unless File.exist?(path) && File.read(path) == text
      directory
    end

    private

    def members(section) = section.rows.select { |row| MEMBERS.key?(row.type) && !row.options.key?("by_hand") }

    # The type in C, and the kind of member.
    def member(row) = OF_OPTION.find(-> { [nil, MEMBERS.fetch(row.type)] }) { |name, _| row.options.key?(name) }.last

    # The members are a macro too, for MEMSCOPE_EMBED.
    def declaration(section)
      record = section.options["struct"]
      lines = members(section).map { |row| "    #{member(row).first} #{row.name.delete_suffix('?')}; \\\n" }
      "#define MEMSCOPE_FIELDS_#{record} \\\n#{lines.join}\n" \
        "struct memscope_#{record} {\n    MEMSCOPE_FIELDS_#{record}};\n"
    end

    # MEMBER(record, name, kind) for each member.
    def members_macro(section)
      record = section.options["struct"]
      lines = members(section).map do |row|
        "    MEMBER(#{record}, #{row.name.delete_suffix('?')}, #{member(row).last}) \\\n"
      end
      "#define MEMSCOPE_MEMBERS_#{record}(MEMBER) \\\n#{lines.join}\n"
    end

    # FIGURE(field, type, file, key, other file, other key) for each field with from=FILE:KEY or from=FILE:KEY,FILE:KEY.
    # Those of files with one number come first, so that the others of a file stand together, and it is read once.
    def figures_macro(section)
      rows = section.rows.select { |row| row.options.key?("from") }
      return if rows.empty?

      lines = rows.partition { |row| !row.options["from"].include?(":") }.flatten(1).map do |row|
        "    FIGURE(#{row.name.delete_suffix('?')}, #{row.type}, #{places(row.options['from'])}) \\\n"
      end
      "#define MEMSCOPE_FIGURES_#{section.name}(FIGURE) \\\n#{lines.join}\n"
    end

    # "-" stands for no file.
    def places(from)
      texts = "#{from},-".split(",").first(2).flat_map { |place| place.delete("-").split(":").values_at(0, 1) }
      texts.map { |text| text ? text.inspect : "NULL" }.join(", ")
    end
  end
end

RecordStructs.write(Dir.pwd) if $PROGRAM_NAME == __FILE__
