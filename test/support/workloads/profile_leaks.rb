# frozen_string_literal: true

# Compares a malloc profile with memory that is held in known ways: prints, for each way, the bytes held, the profile's
# entry for the line that allocated them, and its first entry. Uses the backend ENV["BACKEND"] and the rate ENV["RATE"].

require "json"
require "openssl"
require "memscope_test"

module ProfileLeaks
  NATIVE = Memscope.const_get(:Native)
  RATE = Integer(ENV.fetch("RATE"))
  BACKEND = ENV.fetch("BACKEND").to_sym
  BLOCK = 4096
  COUNT = 128 * RATE / BLOCK # about 128 samples; fewer if a block is sampled twice
  FILE = File.expand_path(__FILE__)
  KEPT = [] # rubocop:disable Style/MutableConstant

  module_function

  # Each allocates COUNT blocks of BLOCK bytes, or about as much, at one line, and returns the expected entry.
  WAYS = {
    leak: lambda {
      Leaks.leak(BLOCK, COUNT, :here)
      { line: __LINE__ - 1, bytes: BLOCK * COUNT, native: "leaks_take_block" }
    },
    leak_without_gvl: lambda {
      Leaks.leak(BLOCK, COUNT, :without_gvl)
      { line: __LINE__ - 1, bytes: BLOCK * COUNT, native: "leaks_take_block", state: "[no GVL]" }
    },
    leak_in_pthread: lambda {
      Leaks.leak(BLOCK, COUNT, :pthread)
      { line: nil, bytes: BLOCK * COUNT, native: "leaks_take_block", state: "[non-Ruby thread]" }
    },
    half_freed: lambda {
      Leaks.leak(BLOCK, COUNT, :here)
      Leaks.free(COUNT / 2, :here)
      { line: __LINE__ - 2, bytes: BLOCK * (COUNT - (COUNT / 2)), native: "leaks_take_block" }
    },
    half_freed_elsewhere: lambda {
      Leaks.leak(BLOCK, COUNT, :without_gvl)
      Leaks.free(COUNT / 2, :pthread)
      { line: __LINE__ - 2, bytes: BLOCK * (COUNT - (COUNT / 2)), native: "leaks_take_block" }
    },
    all_freed: lambda {
      Leaks.leak(BLOCK, COUNT, :here)
      Leaks.free(COUNT, :pthread)
      { line: __LINE__ - 2, bytes: 0 }
    },
    resized: lambda {
      Leaks.leak(BLOCK / 8, COUNT, :pthread)
      Leaks.resize(BLOCK, COUNT, :here)
      { line: __LINE__ - 1, bytes: BLOCK * COUNT, native: "leaks_resize_block" }
    },
    churned: lambda {
      Leaks.churn(COUNT * 4, :here)
      Leaks.churn(COUNT * 4, :without_gvl)
      { line: __LINE__ - 2, bytes: 0 }
    },
    strings: lambda {
      KEPT.concat(Array.new(COUNT) { "x" * (BLOCK - 1) })
      { line: __LINE__ - 1, bytes: BLOCK * COUNT, ruby: "String#*" }
    }
  }.freeze

  # Whether the allocating function of Ruby's zlib extension has a name. Packages strip it.
  ZLIB_HAS_NAMES = File.binread($LOAD_PATH.resolve_feature_path("zlib").last).include?("zlib_mem_alloc")

  # What C libraries hold for Ruby objects: how many objects, a lambda that makes that many and returns its line, and
  # the functions to expect there.
  CONTEXTS = {
    zlib: [COUNT / 64, ->(count) { [__LINE__, Array.new(count) { Zlib::Deflate.new }] },
           { native: ZLIB_HAS_NAMES ? "zlib_mem_alloc" : "deflateInit2_", ruby: "Zlib::Deflate#initialize" }],
    openssl: [COUNT / 4, ->(count) { [__LINE__, Array.new(count) { OpenSSL::SSL::SSLContext.new }] },
              { calls: "SSL_CTX_new_ex" }]
  }.freeze

  # The bytes of `count` objects according to the allocator, without a profile; nil if it does not report them. Runs
  # twice, since the first objects take more.
  def measured(count, make)
    Array.new(2) do
      GC.start
      before = allocated_bytes or return
      kept = make.call([count, 256].min)
      (allocated_bytes - before) * count / kept.last.size
    end.last
  end

  def allocated_bytes
    glibc = Memscope.snapshot(malloc: true).glibc
    Host.mallctl("stats.allocated", 8) || (glibc && (glibc[:uordblks] + glibc[:hblkhd]))
  end

  def contexts(count, make, expected)
    bytes = measured(count, make)
    profile do
      line, kept = make.call(count)
      KEPT.concat(kept)
      { line: line, measured: bytes, **expected }
    end
  end

  # Allocates as much again as is held, and frees it.
  def churn
    Leaks.churn(2 * COUNT, :here)
    COUNT.times { "y" * (BLOCK - 1) }
    [__LINE__ - 2, __LINE__ - 1]
  end

  # The stacks whose innermost Ruby frame with a path is that line of this file; for no line, stacks without such a
  # frame.
  def stacks_at(body, line)
    body[:stacks].select do |stack|
      frame = frames(body, stack).find { |found| found[:path] }
      line ? frame && frame[:path] == FILE && frame[:lineno] == line : frame.nil?
    end
  end

  def frames(body, stack) = stack[:frames].map { |index| body[:frames][index] }

  def names(body, stacks, kind)
    stacks.flat_map { |stack| frames(body, stack).select { |frame| frame[:kind] == kind }.map { |frame| frame[:name] } }
          .uniq
  end

  def found(body, line, stacks = stacks_at(body, line))
    { live_bytes: stacks.sum { |stack| stack[:live_bytes] }, samples: stacks.sum { |stack| stack[:samples] },
      error_bytes: Math.sqrt(stacks.sum { |stack| stack[:error_bytes]**2 }),
      allocated_bytes: stacks.map { |stack| stack[:allocated_bytes] }.all? && stacks.sum { _1[:allocated_bytes] },
      native: names(body, stacks, :native), ruby: names(body, stacks, :ruby), state: names(body, stacks, :state) }
  end

  # The line and the native function that the profile puts first.
  def first(profile)
    line = profile.by(:line).first
    native = profile.by(:native).first
    { name: line&.name, path: line&.path, line: line&.lineno, native: native&.name }
  end

  def profile
    Memscope::MallocProfile.start(rate: RATE, backend: BACKEND)
    truth = yield
    churned = churn
    GC.start
    body = NATIVE.malloc_profile(nil)
    raise body if body.is_a?(String)

    { held: truth, found: found(body, truth[:line]), first: first(Memscope::Profile.capture(body)),
      churned: churned.map { |line| found(body, line) } }
  ensure
    NATIVE.stop_profile
    Leaks.free(COUNT, :here)
    KEPT.clear
    GC.start
  end

  # The blocks that were taken at a line to be held: Ruby may take memory of its own there, such as for a cache.
  def blocks_at(body, line)
    stacks_at(body, line).select { |stack| names(body, [stack], :native).include?("leaks_take_block") }
  end

  # Memory that a child, which continues the profile, holds and frees.
  def in_forked_child
    Memscope::MallocProfile.start(rate: RATE, backend: BACKEND)
    Leaks.leak(BLOCK, COUNT, :here)
    before = __LINE__ - 1
    answer = child_json do
      Leaks.free(COUNT, :here)
      Leaks.leak(BLOCK, COUNT, :here)
      line = __LINE__ - 1
      body = NATIVE.malloc_profile(nil)
      { held: { line: line, bytes: BLOCK * COUNT, native: "leaks_take_block" }, found: found(body, line),
        first: first(Memscope::Profile.capture(body)), of_parent: found(body, before, blocks_at(body, before)) }
    end
    { **answer, parent: found(NATIVE.malloc_profile(nil), before) }
  ensure
    NATIVE.stop_profile
    Leaks.free(COUNT, :here)
  end

  def child_json
    reader, writer = IO.pipe
    pid = fork do
      writer.write(JSON.generate(yield))
      writer.close
      exit!(0)
    end
    writer.close
    answer = reader.read
    Process.wait(pid)
    JSON.parse(answer, symbolize_names: true)
  end
end

ProfileLeaks.profile do
  require "zlib" # loaded while the profile is running
  Leaks.churn(4000, :here) # past the interval that jemalloc drew at the previous rate
  { line: nil }
end
answers = ProfileLeaks::WAYS.transform_values { |way| ProfileLeaks.profile(&way) }
ProfileLeaks::CONTEXTS.each { |name, contexts| answers[name] = ProfileLeaks.contexts(*contexts) }
answers[:child] = ProfileLeaks.in_forked_child
puts JSON.generate(answers)
