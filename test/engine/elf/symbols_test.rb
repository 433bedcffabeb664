# frozen_string_literal: true

require "fileutils"
require "rbconfig"
require_relative "../../test_helper"
require_relative "../../support/compiled"

# The symbols that the engine finds in a library whose file is intact, stripped, deleted, replaced or damaged.
class EngineSymbolsTest < MemscopeTest
  parallelize_me!

  SOURCES = %w[elf/symbols.c elf/functions.c elf/elf_reading.c elf/shared_objects.c base/scratch.c base/own_memory.c
               base/descriptors.c base/status.c].freeze
  OFFSETS = [0, 15, 16, 31, 32, 63, 64, 127, 128, 191].freeze
  WHOLE = %w[outer+0 outer+15 inner+0 inner+15 outer+32 outer+63].freeze
  EXPORTED = %w[outer+0 outer+15 outer+16 outer+31 outer+32 outer+63].freeze
  BUILD_ID = "-Wl,--build-id=0x0123456789abcdef"

  def setup
    skip_under_sanitizer
    skip "needs binutils" unless system("objcopy", "--version", out: File::NULL)
    @directory = Dir.mktmpdir("memscope")
  end

  def teardown = @directory && FileUtils.remove_entry(@directory)

  def test_a_whole_file
    assert_equal [*WHOLE, nil, nil, "unsized+0", "unsized+63"], names(library)
    assert_equal ["complete ok"], @states
  end

  def test_a_stripped_file
    assert_equal [*EXPORTED, nil, nil, nil, nil], names(strip(library))
    assert_equal ["exported ok"], @states
  end

  def test_a_debug_file
    path = library
    debug = "#{@directory}/.build-id/01/23456789abcdef.debug"
    FileUtils.mkdir_p(File.dirname(debug))
    Compiled.run("objcopy", "--only-keep-debug", path, debug)

    assert_equal [*WHOLE, nil, nil, "unsized+0", "unsized+63"], names(strip(path))
    assert_equal ["complete ok"], @states
    Compiled.run("cc", "-shared", "-fPIC", "-Wl,--build-id=0xffff", "-xc", File::NULL, "-o", debug)

    assert_equal EXPORTED, names(path).compact
    assert_equal ["exported ok"], @states
  end

  def test_a_file_that_is_gone
    assert_equal EXPORTED, names(library, replacement: "-").compact
    assert_equal ["exported not_found"], @states
  end

  def test_a_file_that_another_has_replaced
    other = library("other.so", "-DOTHER", "-Wl,--build-id=0xfedcba9876543210")

    assert_equal EXPORTED, names(library, replacement: other).compact
    assert_equal ["exported not_found"], @states
  end

  def test_without_a_build_id
    other = library("other.so", "-Wl,--build-id=none", "-Wl,-z,max-page-size=0x20000")

    assert_equal WHOLE, names(library("same.so", "-Wl,--build-id=none")).first(6)
    assert_equal ["complete ok"], @states
    assert_equal EXPORTED, names(library("same.so", "-Wl,--build-id=none"), replacement: other).compact
    assert_equal ["exported not_found"], @states
  end

  def test_a_broken_file
    { "" => 0, "cut" => 70, "text" => "\x7fELF and no more", "halved" => -1000 }.each do |name, change|
      broken = "#{@directory}/#{name}broken"
      bytes = File.binread(library)
      File.binwrite(broken, change.is_a?(String) ? change : bytes[...change])

      assert_equal EXPORTED, names(library, replacement: broken).compact
      assert_equal ["exported malformed"], @states
    end
  end

  def test_an_executable_at_a_fixed_address
    program = Compiled.program("engine/elf/symbols_test.c", engine: SOURCES, arguments: %w[-no-pie -ldl])

    assert_predicate ChildProcess.run_command(program), :success?
  end

  def test_the_functions_of_ruby
    path = File.realpath(ruby_library)
    microseconds, *found = lookup(path, "all", debug: @directory).map(&:chomp)
    exported = functions_of(path)

    # Of 10,000 addresses, 1324 are in exported functions in Ruby 3.1 on x86-64; 743 in 3.3 on aarch64, where constants
    # are in the code's segment.
    ranges = exported.values.flatten.sort_by(&:end)
    inside = found.count { |line| ranges.bsearch { |range| range.end > line.to_i }&.cover?(line.to_i) }

    assert_operator inside, :>=, 500
    assert_equal(inside, found.count { |line| named?(line, exported) })
    assert_operator Integer(microseconds), :<=, 50_000
  end

  private

  # Each test has its own file, since some change it.
  def library(name = "functions.so", *options)
    built = Compiled.shared("symbols/functions.c", BUILD_ID, *options, as: [name, *options].join.delete("/,:"))
    "#{@directory}/#{name}".tap { |path| FileUtils.cp(built, path) }
  end

  def strip(path) = path.tap { Compiled.run("strip", path) }

  # @return [Array<String, nil>] function and offset at each of OFFSETS from the function outer
  def names(path, replacement: "")
    lines = lookup(path, *OFFSETS.map { |offset| "outer+#{offset}" }, debug: @directory, replacement: replacement)
    @states = lines.map { |line| line[/ (.+) \S+$/, 1] }.uniq
    lines.map { |line| line[/\A\S+\+\d+/] }
  end

  def lookup(path, *addresses, debug:, replacement: "")
    program = Compiled.program("engine/elf/symbols_lookup.c", engine: SOURCES, arguments: ["-ldl"])
    result = ChildProcess.run_command(program, path, debug, replacement, *addresses)

    assert_predicate result, :success?, result
    result.out.lines
  end

  def ruby_library
    paths = %w[libdir archlibdir].filter_map { |key| RbConfig::CONFIG[key] }
                                 .map { |directory| File.join(directory, RbConfig::CONFIG["LIBRUBY_SO"]) }
    paths.find { |path| File.exist?(path) } || skip("Ruby is no shared library here")
  end

  # @return [Hash{String => Array<Range>}] where the exported functions are
  def functions_of(path)
    Compiled.run("nm", "-D", "-S", "--defined-only", path).scan(/^(\h+) (\h+) [TWi] ([^@\s]+)/)
            .each_with_object({}) do |(start, size, name), functions|
      (functions[name] ||= []) << (start.to_i(16)...(start.to_i(16) + size.to_i(16)))
    end
  end

  def named?(line, exported)
    address, name, offset = line.match(/\A(\d+) (.*)\+(\d+)\z/).captures
    ranges = exported[name]
    return false if name.empty? || ranges.nil?

    range = ranges.find { |candidate| candidate.cover?(address.to_i) }

    refute_nil range, line
    assert_equal range.begin + offset.to_i, address.to_i, line
  end
end
