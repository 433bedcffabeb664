# frozen_string_literal: true

require "tsort"

# Tables of the rooms that each room may name (docs/architecture.md), {room => {files: globs, may: rooms}}, and the
# check of files against these tables. Each file belongs to exactly one room; a room may always name itself.
class Rooms
  FACADE = "lib/memscope/setup/facade.rb"

  engine = %w[base kernel elf malloc ledger sampling fork graph dump trend box attach]

  EXT = {
    "base" => { files: %w[ext/memscope/engine/base/* ext/memscope/record_structs.h], may: [] },
    "kernel" => { files: "ext/memscope/engine/kernel/*", may: %w[base] },
    "elf" => { files: "ext/memscope/engine/elf/*", may: %w[base] },
    "malloc" => { files: "ext/memscope/engine/malloc/*", may: %w[base elf] },
    "ledger" => { files: "ext/memscope/engine/ledger/*", may: %w[base kernel elf malloc] },
    "sampling" => { files: "ext/memscope/engine/sampling/*", may: %w[base elf malloc] },
    "fork" => { files: "ext/memscope/engine/fork/*", may: %w[base kernel] },
    "graph" => { files: "ext/memscope/engine/graph/*", may: %w[base] },
    "dump" => { files: "ext/memscope/engine/dump/*", may: %w[base graph] },
    "trend" => { files: "ext/memscope/engine/trend/*", may: %w[base] },
    "box" => { files: "ext/memscope/engine/box/*", may: %w[base trend] },
    "attach" => { files: "ext/memscope/engine/attach/*", may: %w[base kernel fork] },
    "values" => { files: "ext/memscope/{values.c,values.h,extconf.h}", may: %w[base graph] },
    "init" => { files: "ext/memscope/{init.h,natives.def}", may: [] },
    "ruby" => { files: "ext/memscope/ruby/*.{c,h}", may: [*engine, "values"] },
    "heap" => { files: "ext/memscope/ruby/heap/*", may: [*engine, "values", "ruby"] },
    "references" => { files: "ext/memscope/ruby/graph/*", may: [*engine, "values", "ruby", "heap"] },
    "sample" => { files: "ext/memscope/ruby/sample/*", may: [*engine, "values", "ruby", "heap"] },
    "bindings" => { files: "ext/memscope/bindings/*",
                    may: [*engine, "values", "init", "ruby", "heap", "references", "sample"] },
    "memscope" => { files: "ext/memscope/memscope.c", may: %w[base values init] }
  }.freeze

  # The folders of lib/memscope, from the floor up: each may name some of those above it in this list.
  inner = %w[value process heap action profile judge check remote show]

  LIB = {
    "value" => { files: "lib/memscope/{version,value/**/*}.rb", may: [] },
    "process" => { files: "lib/memscope/process/**/*.rb", may: %w[value] },
    "heap" => { files: "lib/memscope/heap/**/*.rb", may: %w[value process] },
    "action" => { files: "lib/memscope/action/**/*.rb", may: %w[value process] },
    "profile" => { files: "lib/memscope/profile/**/*.rb", may: %w[value process heap] },
    "judge" => { files: "lib/memscope/judge/**/*.rb", may: %w[value process heap] },
    "check" => { files: "lib/memscope/check/**/*.rb", may: %w[value process heap profile] },
    "remote" => { files: "lib/memscope/remote/**/*.rb",
                  may: %w[value process heap action profile judge] },
    "show" => { files: "lib/memscope/show/**/*.rb", may: %w[value process heap action profile judge check remote] },
    # Loads every inner room when it is first used.
    "setup" => { files: "lib/memscope/setup/**/*.rb", may: inner },
    "cli" => { files: "lib/memscope/cli/**/*.rb", may: [*inner, "setup", "root"] },
    "web" => { files: "lib/memscope/web/**/*.rb", may: [*inner, "setup"] },
    # What programs, Rails and Puma require.
    "root" => { files: "lib/{memscope,memscope/*,puma/**/*,generators/**/*}.rb",
                may: [*inner, "setup", "cli", "web"] }
  }.freeze

  class << self
    # @return [Rooms] of the extension; references are #includes, looked up in engine/ and then in ext/memscope/
    def ext
      new(EXT, files: "ext/memscope/**/*.{c,h,def}", references: lambda do |_path, line, _scopes|
        line.scan(/^\s*#\s*include\s+"(.+)"/).flatten.map do |name|
          engine = "ext/memscope/engine/#{name}"
          File.exist?(engine) ? engine : "ext/memscope/#{name}"
        end
      end)
    end

    # @return [Rooms] of the library; references are what a line requires, the constants that it names or loads, and
    #   calls of Memscope's methods
    def lib
      new(LIB, files: "lib/**/*.rb", references: lambda do |path, line, scopes|
        required = line.scan(/\brequire_relative[ (]"([^"#]+)"/).flatten
        code = code(line)
        [*required.map { |name| File.expand_path("#{name}.rb", "/#{File.dirname(path)}")[1..] },
         *names(code, line).filter_map { |name| home(name, scopes) }, *(FACADE if calls_facade?(code))] - [path]
      end)
    end

    private

    # A line stripped of its strings (their interpolations stay), of its comment, and of the class or module name that
    # it declares.
    def code(line)
      text = line.gsub(/"(?:\\.|[^"\\])*"|%[wi]\[.*?\]/) { |string| string.scan(/\#\{([^}]*)\}/).join(" ") }
      text.sub(/#.*/, "").sub(/^\s*(?:class|module) [\w:]+/, "")
    end

    def calls_facade?(code)
      @facade ||= File.read(FACADE).scan(/^    def (\w+[?!]?)/).flatten
      code.scan(/\bMemscope\.(\w+[?!]?)/).flatten.any? { |call| @facade.include?(call) || call == "public_send" }
    end

    # The constants that a line names, and those that it has Loading load.
    def names(code, line)
      loaded = line[/\bLoading\.units?[ (]((?:, |:\w+)+)/, 1].to_s.scan(/\w+/)
      loaded + code.scan(/(?<![\w:.@$])(?:Memscope::)?([A-Z]\w*+(?:::[A-Z]\w*+)*+)(?!:)/).flatten
    end

    # The file that declares a constant, looked up as Ruby does: in the innermost scope first.
    def home(name, scopes)
      parts = name.split("::")
      scopes = ["Memscope", *(scopes - ["Memscope"])]
      outer = scopes.size.downto(1).map { |size| scopes.first(size) }
      scope = outer.find { |one| declared.key?([*one, parts.first]) } or return
      paths = (1..parts.size).map { |size| [*scope, *parts.first(size)] }
      path = paths.take_while { |one| declared.key?(one) }.last
      declared[path] unless own?(path, scope)
    end

    # What a module around a line has in the file of its name is the line's own: LEVERS in purge.rb, for Purge::Run.
    def own?(path, scope) = scope.size > 1 && path.size == scope.size + 1 && declared[path] == declared[scope]

    # {["Memscope", "Census", "Row"] => "lib/memscope/heap/census.rb"}; of several files, the one with the
    # constant's name
    def declared
      @declared ||= Dir["lib/memscope/**/*.rb"].each_with_object({}) do |path, homes|
        Rooms.scopes(File.read(path)) do |line, scopes|
          name = line[/^\s*(?:class|module) ([A-Z]\w*)/, 1] || line[/^\s*([A-Z]\w*) = /, 1] or next
          own = name.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase == File.basename(path, ".rb")
          constant = [*scopes, name]
          homes[constant] = path if own || !homes.key?(constant)
        end
      end
    end
  end

  # @param table [Hash] in the form of EXT
  # @param files [String, Array<String>] globs of the files that the table must place
  # @param references [Proc] (path, line, scopes) -> the paths in this tree that this line of that file names, within
  #   these modules
  def initialize(table, files:, references:)
    @table = table
    @files = files
    @references = references
  end

  # @param text [String] Ruby, indented by two spaces
  # @yieldparam line [String]
  # @yieldparam scopes [Array<String>] the modules around it, Memscope first
  # @yieldparam number [Integer]
  def self.scopes(text)
    open = []
    text.each_line.with_index(1) do |line, number|
      open.pop while open.any? && line.match?(/\S/) && line[/\A */].size <= open.last.first
      yield line, open.flat_map(&:last), number
      name = line[/^\s*(?:class|module) ([A-Z][\w:]*)/, 1]
      open << [line[/\A */].size, name.split("::")] if name && !line.match?(/; end$/)
    end
  end

  # @param sources [Hash{String => String}] {path => text}; the tree's files by default
  # @return [Array<String>] "path:line: rule" for each forbidden reference, "path: rule" for a file without a room
  def violations(sources = tree)
    sources.flat_map do |path, text|
      room = room_of(path) or next ["#{path}: in no room of rakelib/rooms.rb"]
      named(path, text).flat_map do |files, number|
        files.filter_map { |file| broken_rule(room, file) }.map { |rule| "#{path}:#{number}: #{rule}" }
      end
    end
  end

  # @return [Array<Array<String>>] sets of files that name one another, directly or through others of the set
  def circles(sources = tree)
    graph = sources.to_h { |path, text| [path, named(path, text).flat_map(&:first).uniq & sources.keys] }
    TSort.strongly_connected_components(graph.method(:each_key), ->(path, &block) { graph[path].each(&block) })
         .select { |files| files.size > 1 }.map(&:sort)
  end

  private

  # Empties the lines of heredocs without interpolation: they are text.
  def without_quoted_lines(text)
    text.gsub(/(?<=<<[-~]')(\w+)'.*?^ *\1$/m) { |quoted| "\n" * quoted.count("\n") }
  end

  # [[the paths that a line names, the line's number]]
  def named(path, text)
    enum_for(:each_line, text).map { |line, scopes, number| [@references.call(path, line, scopes), number] }
  end

  def each_line(text, &) = Rooms.scopes(without_quoted_lines(text), &)

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
