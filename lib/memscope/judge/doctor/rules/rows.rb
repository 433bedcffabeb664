# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Of each row: what it is called, what it may be, and the command that tells more.
      ROWS = {
        stacks: ["stacks", "A thread or fiber that never ends keeps its stack."],
        unattributed: ["memory that no allocator owns", lambda do
          names = evidence.mappers.to_a
          loaded = "; of those that are loaded, these call mmap: #{names.join(', ')}" if names.any?
          "A library maps it by itself, as V8 and other engines do#{loaded}."
        end, "--mappings"],
        shared_memory: ["shared memory", "Files in a tmpfs, such as /dev/shm, or shared mappings.",
                        "--mappings"],
        files: ["mapped files", "Libraries that were loaded, or files that the program maps.",
                "--mappings"],
        jit: ["JIT code", "Ruby compiles the methods that are called often."],
        ruby_internal: ["Ruby's own memory", "Memory that Ruby maps by itself."]
      }.freeze
      # How many stacks or mappings came, and which file grew most, for people.
      MORE = {
        stacks: lambda do
          more = stacks_more.select { |_what, number| number.positive? }
          more.map { |what, number| "#{count(number)} #{what} more" }.join(", ") if more.any?
        end,
        shared_memory: lambda do
          before = earlier.evidence.shared_files.to_h
          files = evidence.shared_files.to_h.map { |file, bytes| [file, bytes - before.fetch(file, 0)] }
          file, more = files.max_by(&:last)
          "#{size(more)} of it in #{file}" if more&.positive?
        end,
        unattributed: lambda do
          more = ledger.mappings.to_i - earlier.ledger.mappings.to_i
          "in #{count(more)} mappings more" if more.positive?
        end
      }.freeze

      AGES = ". A GC that makes an object old writes to it; `Process.warmup` before the fork, from " \
             "Ruby 3.3 on, makes objects old while only the parent has them."

      ROWS.each do |row, (name, cause, option)|
        growth(:"#{row}_growth", "growth of #{name}", -> { row_bytes(row) || 0 }) do |bytes|
          held = "--paths-to #{stacks_more.max_by(&:last).first.chop.capitalize}"
          { title: ["#{size(bytes)} more is #{name}", *figure(MORE[row])].join(": "),
            why: cause.is_a?(Proc) ? figure(cause) : cause,
            remedy: [row == :stacks ? command("heap", held) : command("report", *option), nil] }
        end
      end

      # The findings on free memory judge it.
      growth(:free_growth, "growth of free memory that is kept", :free_bytes) do |bytes|
        { title: "#{size(bytes)} more is free memory that malloc and Ruby's heap keep", why: [],
          severity: :info, returns: "A dry run of a purge says how much of it goes back.",
          remedy: [command("purge", "--dry-run"), "predicts only"] }
      end

      growth(:unshared_growth, "shared memory that becomes private", :uss_bytes,
             :unshared_growth_bytes) do |bytes|
        own = ledger.rows.filter_map do |row|
          before = earlier.row(row.id)&.private_bytes
          [row, row.private_bytes - before] if before && row.private_bytes
        end
        rows = own.select { |_row, grown| grown >= MEBIBYTE }.max_by(3, &:last)
        most = rows.map { |row, grown| "#{row.label} #{size(grown)}" }.join(", ")
        objects = rows.first&.first&.id == :ruby_heap
        collections = snapshot.gc[:major_gc_count].to_i - earlier.snapshot.gc[:major_gc_count].to_i
        { title: "#{size(bytes)} that other processes shared has become private",
          lead: "private memory (USS) grew by #{size(growth_of(:uss_bytes))}, RSS " \
                "by #{size(growth_of(:rss_bytes))}: this process, or one that " \
                "shared its pages, wrote to them.",
          why: [("By row: #{most}." unless most.empty?),
                ("#{counted(collections, 'full GCs')} ran meanwhile#{AGES}" if collections.positive?)],
          returns: "Only the end of the process makes these pages shared again.",
          remedy: [objects ? command("census", "--private") : command("report", "--shared"), nil] }
      end
      private_constant :ROWS, :MORE, :AGES
    end
  end
end
