# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/compiled"

# Compares the native frames of a stack, as the cached unwind rules find them, with those of libgcc's unwinder at the
# same malloc call: in a program with frames of every kind, and in a Ruby that calls much of its own code and other
# libraries.
class EngineNativeFramesTest < MemscopeTest
  ENGINE = %w[sampling/native_frames.c sampling/unwind_rules.c elf/object_lookup.c elf/shared_objects.c base/scratch.c
              base/descriptors.c base/own_memory.c base/status.c].freeze
  SAMPLER = %w[sampling/import_sampler.c sampling/imports.c sampling/sample_table.c sampling/stack_table.c].freeze
  Comparison = Struct.new(:stacks, :frames, :different, :without_rule)

  # Nearly all frames have a plain rule: otherwise libgcc would be compared with itself.
  RUBY = <<~'RUBY'
    %w[date json openssl set zlib].each { |library| require library }
    Formatter = Struct.new(:text) { def call(number) = "#{text} #{number}" }
    def descend(depth) = depth.zero? ? "leaf" * 40 : descend(depth - 1)

    10.times do |round|
      JSON.parse(JSON.generate((1..50).map { |key| { "key #{key}" => [key.to_s * 20, { "of" => key }] } }))
      Zlib.inflate(Zlib.deflate("text" * 1000))
      OpenSSL::Cipher.new("aes-128-cbc").encrypt.tap { |cipher| cipher.random_key && cipher.update("y" * 100) }
      (1..200).map(&:to_s).sort_by { |text| text * 3 }.each_slice(7).map { |texts| texts.join("-" * 30) }
      "line one\nline two\n".gsub(/l(i)ne/) { $1 * 40 }.scan(/\w+/)
      (2**4000).to_s.to_i
      Fiber.new { descend(10) && Fiber.yield && descend(3) }.tap { |fiber| 2.times { fiber.resume } }
      Enumerator.new { |taker| 5.times { |index| taker << ("of #{index}" * 50) } }.next
      Thread.new { descend(20) && Formatter.new("x").method(:call).to_proc.call(1) }.join
      eval("[1, 2].to_h { |number| [number.to_s * 30, number] }")
      begin
        raise ArgumentError, "message" * 100
      rescue ArgumentError => e
        e.full_message
      end
      Marshal.load(Marshal.dump([{ "a" => "b" * 100 }] * 10))
      Dir["/etc/*"]
      GC.start if round % 5 == 0
    end
  RUBY

  def setup
    skip_under_sanitizer
    skip "rules are kept on x86-64 with glibc" unless RUBY_PLATFORM.match?(/\Ax86_64-linux(-gnu)?\z/)
  end

  %w[cc clang].each do |compiler|
    define_method("test_frames_of_every_kind_by_#{compiler}") do
      skip "#{compiler} is not installed" unless system(compiler, "--version", out: File::NULL, err: File::NULL)

      found = compare(Compiled.program("fixtures/frames.c", compiler: compiler, arguments: ["-pthread"]))

      assert_equal 0, found.different
      assert_operator found.stacks, :>=, 15
      assert_operator found.without_rule, :>=, 1, "the frame of the signal"
    end
  end

  # The C library then reports one segment at a time: tables in another segment are left to libgcc.
  def test_frames_of_a_program_with_gaps_between_its_segments
    gaps = %w[-no-pie -Wl,-z,separate-code -Wl,-z,max-page-size=0x200000]
    found = compare(Compiled.program("fixtures/frames.c", arguments: ["-pthread", *gaps], as: "gaps"))

    assert_equal 0, found.different
    assert_operator found.stacks, :>=, 15
  end

  def test_frames_of_ruby
    found = compare(RbConfig.ruby, "-W0", "-e", RUBY)

    assert_equal 0, found.different
    assert_operator found.stacks, :>, 1000
    assert_operator found.frames, :>, 10 * found.stacks
    assert_operator found.without_rule, :<, found.frames / 1000
  end

  # Both builds have the same addresses, but another frame size: rules cached for one are wrong for the other.
  def test_frames_of_a_library_that_is_rebuilt
    builds = [12_288, 4096].map { |room| Compiled.shared("room.c", "-DROOM=#{room}", as: "room_#{room}.so") }
    program = Compiled.program("fixtures/reload.c", arguments: ["-ldl"])

    builds.permutation.each do |libraries|
      found = compare(program, *libraries)

      assert_equal 0, found.different
      assert_operator found.stacks, :>=, 4
    end
  end

  # When the unwinder itself calls malloc, it cannot unwind that call's stack: it would wait for a lock that it holds.
  %w[rules imports].each do |way|
    define_method("test_an_unwinder_that_allocates_by_#{way}") do
      program = Compiled.program("fixtures/registered_frames.c",
                                 engine: [*ENGINE, *SAMPLER],
                                 arguments: ["-pthread", "-ldl", "-lm"])
      result = ChildProcess.run_command(program, way, timeout: 30)

      assert_predicate result, :success?, result
      assert_operator Integer(result.out), :>, 0
    end
  end

  private

  def compare(*command)
    engine = ENGINE.map { |file| File.join(Compiled::ENGINE, file) }
    library = Compiled.shared("compare_frames.c", *engine, "-I#{Compiled::ENGINE}", "-ldl")
    result = ChildProcess.run_command(*command, preload: library)

    assert_predicate result, :success?, result
    Comparison.new(*result.err.lines.grep(/^compared:/).last.scan(/\d+/).map(&:to_i))
  end
end
