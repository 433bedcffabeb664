# frozen_string_literal: true

# Tables of the rooms that each room may name (docs/architecture.md), {room => {files: globs, may: rooms}}, and the
# check of files against these tables. Each file belongs to exactly one room; a room may always name itself.
class Rooms
  engine = %w[base kernel elf malloc ledger sampling fork graph dump trend]

  EXT = {
    "base" => { files: "ext/memscope/engine/base/*", may: [] },
    "kernel" => { files: "ext/memscope/engine/kernel/*", may: %w[base] },
    "elf" => { files: "ext/memscope/engine/elf/*", may: %w[base] },
    "malloc" => { files: "ext/memscope/engine/malloc/*", may: %w[base elf] },
    "ledger" => { files: "ext/memscope/engine/ledger/*", may: %w[base kernel elf malloc] },
    "sampling" => { files: "ext/memscope/engine/sampling/*", may: %w[base elf malloc] },
    "fork" => { files: "ext/memscope/engine/fork/*", may: %w[base kernel] },
    "graph" => { files: "ext/memscope/engine/graph/*", may: %w[base] },
    "dump" => { files: "ext/memscope/engine/dump/*", may: %w[base graph] },
    "trend" => { files: "ext/memscope/engine/trend/*", may: %w[base] },
    "values" => { files: "ext/memscope/{values.c,values.h,extconf.h}", may: [] },
    "init" => { files: "ext/memscope/init.h", may: [] },
    "ruby" => { files: "ext/memscope/ruby/*", may: [*engine, "values"] },
    "bindings" => { files: "ext/memscope/bindings/*", may: [*engine, "values", "init", "ruby"] },
    "memscope" => { files: "ext/memscope/memscope.c", may: %w[values init] }
  }.freeze

  # Sets of rooms, from the floor up: what readings and actions are made of; the last set adds the rooms that show them.
  floor = %w[kit quantity]
  values = [*floor, "values"]
  judging = [*values, "purge", "lint"]
  sampling = [*values, "profile", "malloc_profile", "object_profile"]
  by_tag = [*sampling, "tags"]
  cluster = [*judging, *by_tag, "configuration", "remote"].uniq
  everything = [*cluster, "measurement", "check", "report", "doctor", "policy", "workers", "metrics",
                "facade"]

  LIB = {
    # The two cases in which this room names a room above it: Reading#to_s calls Report, and Reading#- calls Diff.
    "kit" => { files: "lib/memscope/{version,native/*,errors,field,record,reading,reasons,terms,collection,loader," \
                      "loading,ttl_cache,forks,runtime,requirement}.rb",
               may: [], except: %w[lib/memscope/report.rb lib/memscope/diff.rb] },
    "quantity" => { files: "lib/memscope/report/quantity.rb", may: [] },
    "values" => { files: "lib/memscope/{allocator,arenas,census,census/*,cgroup,diff,dump,dump/*,fragmentation," \
                         "heap_graph,heap_graph/*,history,history/*,ledger,malloc_conf,mappings,process_memory," \
                         "requires,requires/*,ruby_heap,ruby_heap/*,size_classes,snapshot,verdict,verdict/*}.rb",
                  may: floor },
    "purge" => { files: "lib/memscope/{purge,purge/**/*,tuning}.rb", may: values },
    "lint" => { files: "lib/memscope/{lint,lint/**/*}.rb", may: values },
    "profile" => { files: "lib/memscope/{profile,profile/**/*}.rb", may: [*values, "report"] },
    "malloc_profile" => { files: "lib/memscope/{malloc_profile,malloc_profile/*}.rb", may: [*floor, "profile"] },
    "object_profile" => { files: "lib/memscope/{object_profile,object_profile/*}.rb", may: [*values, "profile"] },
    "tags" => { files: "lib/memscope/tags.rb", may: sampling },
    "check" => { files: "lib/memscope/{check,check/*}.rb", may: [*sampling, "measurement"] },
    "measurement" => { files: "lib/memscope/measurement.rb", may: [*values, "purge", "object_profile"] },
    "policy" => { files: "lib/memscope/{policy,policy/*}.rb", may: values },
    "doctor" => { files: "lib/memscope/{doctor,diagnosis,doctor/**/*}.rb", may: [*values, "lint"] },
    "configuration" => { files: "lib/memscope/{configuration,configuration/*}.rb", may: floor },
    # May name the facade: clients are other processes, which call Memscope through this room.
    "remote" => { files: "lib/memscope/{client,remote/*}.rb",
                  may: [*judging, *by_tag, "configuration", "facade"].uniq },
    "workers" => { files: "lib/memscope/{workers,workers/*}.rb",
                   may: [*values, "purge", "policy", "configuration", "remote", "tags"] },
    "metrics" => { files: "lib/memscope/{metrics,metrics/*}.rb", may: [*by_tag, "configuration", "workers"] },
    "report" => { files: "lib/memscope/{report,report/*}.rb", may: values },
    # Loads every other room by autoload when it is first used.
    "facade" => { files: "lib/memscope{,/facade,/eager_load}.rb", may: [*everything, "web", "exporters", "surfaces"] },
    "launch" => { files: "lib/memscope/{launch,launch/*}.rb", may: everything },
    "cli" => { files: "lib/memscope/{cli,cli/**/*}.rb", may: [*everything, "launch"] },
    "web" => { files: "lib/memscope/{web,web/**/*}.rb", may: [*everything, "exporters"] },
    "exporters" => { files: "lib/memscope/{prometheus,prometheus_collector,open_telemetry,yabeda}.rb",
                     may: [*floor, "metrics"] },
    "tasks" => { files: "lib/memscope/tasks.rb", may: %w[cli] },
    "surfaces" => { files: "lib/{memscope/{railtie,rack_tags,sidekiq_tags,assertions,rspec},generators/**/*," \
                           "puma/**/*}.rb",
                    may: [*everything, "web", "tasks"] }
  }.freeze

  class << self
    # @return [Rooms] of the extension; references are #includes, looked up in engine/ and then in ext/memscope/
    def ext
      new(EXT, files: "ext/memscope/**/*.{c,h,def}", references: lambda do |_path, line|
        line.scan(/^\s*#\s*include\s+"(.+)"/).flatten.map do |name|
          engine = "ext/memscope/engine/#{name}"
          File.exist?(engine) ? engine : "ext/memscope/#{name}"
        end
      end)
    end

    # @return [Rooms] of the library; references are what a line requires, the constants that it names, and calls of
    #   Memscope's methods
    def lib
      new(LIB, files: "lib/**/*.rb", references: lambda do |path, line|
        required = line.scan(/^\s*require_relative "(.+)"/).flatten
        [*required.map { |name| File.expand_path("#{name}.rb", "/#{File.dirname(path)}")[1..] },
         *constants(code(line)), *("lib/memscope/facade.rb" if calls_facade?(code(line)))] - [path]
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
      @facade ||= File.read("lib/memscope/facade.rb").scan(/^    def (\w+[?!]?)/).flatten
      code.scan(/\bMemscope\.(\w+[?!]?)/).flatten.any? { |call| @facade.include?(call) || call == "public_send" }
    end

    # Paths of the files that declare the named constants: report/quantity.rb for Report::Quantity, ledger.rb for
    # Ledger::Row.
    def constants(code)
      names = code.scan(/(?<![\w:.@$])(?:Memscope::)?((?:[A-Z]\w*)(?:::[A-Z]\w*)*)/).flatten
      names.grep(/[a-z]|\ACLI/).filter_map do |name|
        path = name.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.split("::")
        homes = path.size.downto(1).map { |depth| "lib/memscope/#{path.first(depth).join('/')}.rb" }
        homes.find { |home| File.exist?(home) } || declared[name[/\A\w+/]]
      end
    end

    # Constants of Memscope in files of another name: {"Cost" => "lib/memscope/reading.rb"}
    def declared
      @declared ||= Dir["lib/memscope/**/*.rb"].flat_map do |path|
        File.read(path).scan(/^  (?:class|module) ([A-Z]\w*) ?(?:<|$)/).flatten.map { |name| [name, path] }
      end.to_h
    end
  end

  # @param table [Hash] in the form of EXT
  # @param files [String, Array<String>] globs of the files that the table must place
  # @param references [Proc] (path, line) -> the paths in this tree that this line of that file names
  def initialize(table, files:, references:)
    @table = table
    @files = files
    @references = references
  end

  # @param sources [Hash{String => String}] {path => text}; the tree's files by default
  # @return [Array<String>] "path:line: rule" for each forbidden reference, "path: rule" for a file without a room
  def violations(sources = tree)
    sources.flat_map do |path, text|
      room = room_of(path) or next ["#{path}: in no room of rakelib/rooms.rb"]
      without_quoted_lines(text).each_line.with_index(1).flat_map do |line, number|
        rules = @references.call(path, line).filter_map { |named| broken_rule(room, named) }
        rules.map { |rule| "#{path}:#{number}: #{rule}" }
      end
    end
  end

  private

  # Empties the lines of heredocs without interpolation: they are text.
  def without_quoted_lines(text)
    text.gsub(/(?<=<<[-~]')(\w+)'.*?^ *\1$/m) { |quoted| "\n" * quoted.count("\n") }
  end

  def tree = Dir[*@files].sort.to_h { |path| [path, File.read(path)] }

  def room_of(path)
    flags = File::FNM_EXTGLOB | File::FNM_PATHNAME
    @table.keys.find { |room| Array(@table[room][:files]).any? { |glob| File.fnmatch?(glob, path, flags) } }
  end

  def broken_rule(room, named)
    other = room_of(named) or return "#{named} is in no room"
    may = @table[room][:may]
    return if other == room || may.include?(other) || @table[room][:except]&.include?(named)

    "#{room} may not name #{other} (#{named}), only #{[room, *may].join(', ')}"
  end
end
