# frozen_string_literal: true

require "strscan"

# sig/fields.rbs: a reader for each field of a record, of the type that its table documents; a reader and a writer for
# each setting, of the type that its allowed values have.
module Signatures
  FILE = "sig/fields.rbs"
  NAMES = { "Boolean" => "bool", "Object" => "plain", "Numeric" => "(Integer | Float)" }.freeze
  HEADER = "# Made by `rake sig` from the fields and settings in lib/. Other signatures are in memscope.rbs.\n"
  # By what a setting allows: what its reader returns, and what its writer takes.
  SETTINGS = {
    /\Atrue, false\z/ => %w[bool bool], /\Atrue, false, an/ => ["bool | String", "bool | String | _ToPath"],
    /\Anil, an absolute/ => ["String?", "(String | _ToPath)?"], /\Anil, a String/ => %w[String? String?],
    /\Anil, a number/ => ["(Integer | Float)?", "Numeric?"], /\Aa number of s/ => ["Integer | Float", "Numeric"],
    /\Aa number from/ => %w[Float Numeric], /\A:/ => %w[Symbol Symbol], / to call/ => %w[_Authorize? _Authorize?],
    / to info/ => %w[_Logger? _Logger?]
  }.freeze

  class << self
    # @return [String] content of FILE
    def generate
      require "memscope"
      Memscope.eager_load!
      require_relative "yard_fields"
      sections = FieldTables.sections.to_h { |section| ["Memscope::#{section.name}", section] }
      "#{HEADER}#{block(Memscope, sections, 0)}#{settings}"
    end

    private

    def settings
      types = Memscope::Configuration::SETTINGS.each_value.map do |setting|
        [setting.name, *SETTINGS.find { |allowed, _types| allowed.match?(setting.allowed) }.last]
      end
      readers = types.map { |name, type, _given| "attr_reader #{name}: #{type}" }
      writers = types.map { |name, _type, given| "def #{name}=: (#{given} value) -> void" }
      lines = ["module Memscope", "  class Configuration", *readers.map { |line| "    #{line}" }, "",
               "    class Builder", *[*readers, *writers].map { |line| "      #{line}" }, "    end", "  end", "end"]
      "\n#{lines.join("\n")}\n"
    end

    def block(container, sections, depth)
      lines = sections.key?(container.name) ? fields(sections[container.name]) : []
      lines += parts(container, sections).map { |part| block(part, sections, depth + 1).chomp }
      indent = "  " * depth
      name = "#{container.is_a?(Class) ? 'class' : 'module'} #{container.name.split('::').last}"
      body = lines.map { |line| line.start_with?(" ") ? "\n#{line}" : "#{indent}  #{line}" }
      "#{indent}#{name}\n#{body.join("\n").delete_prefix("\n")}\n#{indent}end\n"
    end

    # The modules in the container that have records in them, or are records.
    def parts(container, sections)
      names = sections.keys.filter_map { |name| name[/\A#{container.name}::(\w+)/, 1] }
      names.uniq.sort.map { |name| container.const_get(name) }
    end

    def fields(section)
      section.rows.map do |row|
        type = union(StringScanner.new(YardFields.documentation(section, row)[/\A\[(.*?)\](?=\s|\z)/, 1]))
        row.type == "boolean" ? "def #{row.name}: () -> #{type}" : "attr_reader #{row.name}: #{type}"
      end
    end

    # Parses types such as "Integer, nil", up to the bracket that closes them.
    def union(text)
      types = [one(text)]
      types << one(text) while text.skip(/, /)
      known = types - ["nil"]
      known = known.one? ? known.first : "(#{known.join(' | ')})"
      types.include?("nil") && known != "plain" ? "#{known}?" : known
    end

    def one(text)
      name = text.scan(/[\w:]+/)
      if text.skip(/\(/) then tuple(text)
      elsif text.skip(/</) then "#{name}[#{union(text)}]".tap { text.skip(/>/) }
      elsif text.skip(/\{/) then pair(name, text)
      else NAMES.fetch(name, name)
      end
    end

    def tuple(text)
      types = [one(text)]
      types << one(text) while text.skip(/, /)
      text.skip(/\)/)
      "[#{types.join(', ')}]"
    end

    def pair(name, text)
      key = union(text)
      text.skip(/ => /)
      "#{name}[#{key}, #{union(text)}]".tap { text.skip(/\}/) }
    end
  end
end

desc "Write the signatures of fields to #{Signatures::FILE}"
task(sig: :compile) { File.write(Signatures::FILE, Signatures.generate) }

task "lint:types" => "compile:strict" do
  abort "#{Signatures::FILE} is not current: run rake sig" unless File.read(Signatures::FILE) == Signatures.generate
end
