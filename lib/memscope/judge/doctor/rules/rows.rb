# frozen_string_literal: true

require_relative "../../../value/loading"

Memscope::Loading.unit :Diagnosis

module Memscope
  module Doctor
    module Rules
      # Bytes. Growth between two diagnoses is named from here on, whatever the row.
      GROWN = Diagnosis::GROWN
      # Growth by at least this share of the RSS is a warning: less may be what any work leaves.
      GROWN_SHARE = 0.05
      GROWTH_SEVERITY = ->(f, bytes) { f.reaches?(bytes, GROWN_SHARE * f.rss_bytes) ? :warning : :info }
      # How many threads and fibers came, for people.
      STACKS_MORE = lambda do |f|
        more = f.stacks_more.select { |_what, number| number.positive? }
        more.map { |what, number| "#{count(number)} #{what} more" }.join(", ") if more.any?
      end
      MAPPINGS_MORE = ->(f) { "in #{count(f.mappings_more)} mappings more" if f.mappings_more.positive? }
      PATHS_TO = ->(f) { "#{heap(f)} --paths-to #{f.stacks_more.max_by(&:last).first.chop.capitalize}" }
      MAPPED_BY = lambda do |f|
        names = f.evidence.mappers.to_a
        loaded = "; of those that are loaded, these call mmap: #{names.join(', ')}" if names.any?
        "A library maps it by itself, as V8 and other engines do#{loaded}."
      end
      REPORT = ->(f) { "memscope report --pid #{f.ledger.pid}" }
      MAPPINGS_OF_IT = ->(f) { "memscope report --pid #{f.ledger.pid} --mappings" }
      PRIVATE_ROWS = lambda do |f|
        rows = f.private_growth.select { |_row, bytes| bytes >= MEBIBYTE }.first(3)
        rows.map { |label, bytes| "#{label} #{size(bytes)}" }.join(", ")
      end

      # Of each row: what it is called, what it may be, the command that tells more, and how many more there are.
      ROWS = {
        stacks: ["stacks", "A thread or fiber that never ends keeps its stack.", PATHS_TO, STACKS_MORE],
        unattributed: ["memory that no allocator owns", MAPPED_BY, MAPPINGS_OF_IT, MAPPINGS_MORE],
        shared_memory: ["shared memory", "Files in a tmpfs, such as /dev/shm, or shared mappings.", MAPPINGS_OF_IT],
        files: ["mapped files", "Libraries that were loaded, or files that the program maps.", MAPPINGS_OF_IT],
        jit: ["JIT code", "Ruby compiles the methods that are called often.", REPORT],
        ruby_internal: ["Ruby's own memory", "Memory that Ruby maps by itself.", REPORT]
      }.freeze

      ROW_GROWTH = table(
        **ROWS.to_h do |row, (name, cause, command, more)|
          [:"#{row}_growth",
           growth(subject: "growth of #{name}", now: ->(f) { f.bytes(row) || 0 },
                  why: ->(f, _) { cause.is_a?(Proc) ? cause.call(f) : cause },
                  title: ->(f, bytes) { ["#{size(bytes)} more is #{name}", *more&.call(f)].join(": ") },
                  remedy: ->(f) { [command.call(f), nil] })]
        end,
        free_growth: growth(
          subject: "growth of free memory that is kept", now: :free_bytes.to_proc, why: ->(_, _) { [] },
          severity: :info, # the findings on free memory judge it
          recoverable: "A dry run of a purge says how much of it goes back, and what that costs.",
          title: ->(_, bytes) { "#{size(bytes)} more is free memory that malloc and Ruby's heap keep" },
          remedy: ->(f) { ["#{purge(f).rstrip} --dry-run", "predicts only"] }
        ),
        unshared_growth: growth(
          subject: "shared memory that becomes private", now: :uss_bytes.to_proc, affected: :unshared_growth_bytes,
          recoverable: "Only the end of the process makes these pages shared again.",
          title: ->(_, bytes) { "#{size(bytes)} that other processes shared has become private" },
          explanation: lambda do |f|
            rows = PRIVATE_ROWS.call(f)
            ["In #{format('%.1f', f.seconds)} s, private memory (USS) grew by #{size(f.growth_of(&:uss_bytes))}, RSS " \
             "by #{size(f.growth_of(&:rss_bytes))}: this process, or one that shared its pages, wrote to them.",
             *("By row: #{rows}." unless rows.empty?),
             *("#{counted(f.major_gcs_more, 'full GCs')} ran meanwhile." if f.major_gcs_more.positive?),
             *by_history(f)].join(" ")
          end,
          why: ->(_, _) { [] }, remedy: ->(f) { ["memscope report --pid #{f.ledger.pid} --shared", nil] }
        )
      )
      private_constant :GROWN, :GROWN_SHARE, :STACKS_MORE, :MAPPINGS_MORE, :MAPPED_BY, :PATHS_TO, :REPORT,
                       :MAPPINGS_OF_IT, :PRIVATE_ROWS, :ROWS, :ROW_GROWTH
    end
  end
end
