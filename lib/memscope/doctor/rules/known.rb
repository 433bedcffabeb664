# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Versions with a known defect that can affect this process.
      KNOWN_RULES = table(
        wasteful_yjit: {
          subject: "YJIT that makes all of its memory resident",
          inapplicable: ->(f) { "this is not Ruby 3.1 with YJIT" unless f.ruby?("3.1") && f.environment.yjit? },
          affected: ->(f) { f.bytes(:jit) },
          floor: FLOOR, ratio: 0.10,
          recoverable: "YJIT of Ruby 3.1 returns nothing.",
          title: ->(_, bytes) { "YJIT holds #{size(bytes)}, however little code it has compiled" },
          explanation: "YJIT of Ruby 3.1 makes all of its code memory resident when it starts.",
          evidence: ->(f) { { rss_bytes: f.rss_bytes, jit_bytes: f.bytes(:jit) } },
          remedy: ["RUBYOPT=\"--yjit --yjit-exec-mem-size=64\"",
                   "requires a restart; or upgrade to Ruby 3.2, whose YJIT memory grows with the code"]
        },
        touched_main_stack: {
          subject: "a main stack that is resident in full",
          inapplicable: ->(f) { "this is not Ruby 3.3" unless f.ruby?("3.3") },
          affected: ->(f) { f.bytes(:stacks, :main) },
          floor: 7 * MEBIBYTE, severity: :info, confidence: :likely,
          recoverable: "The stack stays resident until the process ends.",
          title: ->(_, bytes) { "the main thread's stack holds #{size(bytes)}, touched when Ruby started" },
          explanation: "Some builds of Ruby 3.3 touch all of the stack that they reserve; Ruby 3.4 does not.",
          evidence: ->(f) { { main_stack_bytes: f.bytes(:stacks, :main) } },
          remedy: ["ulimit -s 1024 # KiB, before Ruby starts", "leaves less room for deep recursion"]
        },
        crashing_profiler: {
          subject: "a jemalloc whose profiling crashes",
          inapplicable: JEMALLOC,
          present: ->(f) { f.allocator.version&.start_with?("5.3.0") && f.setting(:prof) == true },
          recoverable: "This finding is about a crash.",
          title: "jemalloc 5.3.0 can crash when a thread ends while prof:true is set",
          explanation: "This is jemalloc's issue 2681; prof_active:false does not prevent it.",
          evidence: ->(f) { { version: f.allocator.version, prof: f.setting(:prof), threads: f.threads } },
          remedy: ["MALLOC_CONF=prof:false", "requires a restart; keep MALLOC_CONF's other options; disables profiles"]
        },
        musl: {
          subject: "an allocator with a single lock",
          inapplicable: ->(f) { "musl does not serve malloc" unless f.allocator.name == :musl },
          present: ->(f) { (f.threads || 1) > 2 },
          severity: :info,
          recoverable: "This finding is about speed, not about memory.",
          title: ->(f) { "#{f.threads} threads share the single lock of musl's malloc" },
          explanation: "C code that allocates without the GVL waits for the other threads.",
          evidence: ->(f) { { threads: f.threads } },
          remedy: ["memscope exec -- COMMAND", "requires a restart under jemalloc"]
        }
      )
      private_constant :KNOWN_RULES
    end
  end
end
