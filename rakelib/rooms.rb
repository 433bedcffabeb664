# frozen_string_literal: true

# Which room may name which (docs/architecture.md), as tables, {room => {files: globs, may: rooms}}, and the check of
# files against them. Each file belongs to exactly one room; a room may always name itself.
class Rooms
  engine = %w[base kernel elf malloc ledger sampling]

  EXT = {
    "base" => { files: "ext/memscope/engine/base/*", may: [] },
    "kernel" => { files: "ext/memscope/engine/kernel/*", may: %w[base] },
    "elf" => { files: "ext/memscope/engine/elf/*", may: %w[base] },
    "malloc" => { files: "ext/memscope/engine/malloc/*", may: %w[base elf] },
    "ledger" => { files: "ext/memscope/engine/ledger/*", may: %w[base kernel elf malloc] },
    "sampling" => { files: "ext/memscope/engine/sampling/*", may: %w[base elf malloc] },
    "values" => { files: "ext/memscope/{values.c,values.h,extconf.h}", may: [] },
    "init" => { files: "ext/memscope/init.h", may: [] },
    "ruby" => { files: "ext/memscope/ruby/*", may: [*engine, "values"] },
    "bindings" => { files: "ext/memscope/bindings/*", may: [*engine, "values", "init", "ruby"] },
    "memscope" => { files: "ext/memscope/memscope.c", may: %w[values init] }
  }.freeze

  # The rooms of lib/ are not in a table yet.
  LIB = {}.freeze

  class << self
    # @return [Rooms] of the extension: what an #include names, from engine/ or from ext/memscope/
    def ext
      new(EXT, files: "ext/memscope/**/*.{c,h,def}", references: lambda do |_path, line|
        line.scan(/^\s*#\s*include\s+"(.+)"/).flatten.map do |name|
          engine = "ext/memscope/engine/#{name}"
          File.exist?(engine) ? engine : "ext/memscope/#{name}"
        end
      end)
    end

    # @return [Rooms] of the library
    def lib = new(LIB, files: [], references: ->(_path, _line) { [] })
  end

  # @param table [Hash] as EXT
  # @param files [String, Array<String>] globs of the files that the table must place
  # @param references [Proc] (path, line) -> the paths in this tree that this line of that file names
  def initialize(table, files:, references:)
    @table = table
    @files = files
    @references = references
  end

  # @param sources [Hash{String => String}] {path => text}: the tree's, unless others are given
  # @return [Array<String>] "path:line: rule" for each wrong arrow, "path: rule" for a file without a room
  def violations(sources = tree)
    sources.flat_map do |path, text|
      room = room_of(path) or next ["#{path}: in no room of rakelib/rooms.rb"]
      text.each_line.with_index(1).flat_map do |line, number|
        rules = @references.call(path, line).filter_map { |named| broken_rule(room, named) }
        rules.map { |rule| "#{path}:#{number}: #{rule}" }
      end
    end
  end

  private

  def tree = Dir[*@files].sort.to_h { |path| [path, File.read(path)] }

  def room_of(path)
    flags = File::FNM_EXTGLOB | File::FNM_PATHNAME
    @table.keys.find { |room| Array(@table[room][:files]).any? { |glob| File.fnmatch?(glob, path, flags) } }
  end

  def broken_rule(room, named)
    other = room_of(named) or return "#{named} is in no room"
    may = @table[room][:may]
    return if other == room || may.include?(other)

    "#{room} may not name #{other} (#{named}), only #{[room, *may].join(', ')}"
  end
end
