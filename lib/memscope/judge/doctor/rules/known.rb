# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Versions with a known defect that can affect this process.
      KNOWN_RULES = table(
        crashing_profiler: {
          subject: "a jemalloc whose profiling crashes",
          inapplicable: JEMALLOC,
          present: ->(f) { f.allocator.version&.start_with?("5.3.0") && f.setting(:prof) == true },
          recoverable: "This finding is about a crash.",
          title: "jemalloc 5.3.0 can crash when a thread ends while prof:true is set",
          explanation: "This is jemalloc's issue 2681; prof_active:false does not prevent it.",
          evidence: ->(f) { { version: f.allocator.version, prof: f.setting(:prof), threads: f.threads } },
          remedy: ["MALLOC_CONF=prof:false", "requires a restart; keep MALLOC_CONF's other options; disables profiles"]
        }
      )
      private_constant :KNOWN_RULES
    end
  end
end
