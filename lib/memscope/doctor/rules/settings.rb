# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      NO_AMOUNT = "It is about a setting."
      SEE = "`memscope doctor --settings` shows all of them, and what would suit."

      # Rules on what Memscope.lint says: the id, what is looked for, and the ids of its problems. How many arenas there
      # are only informs: the rules on what is free in them tell whether that does harm.
      PROBLEMS = {
        invalid_settings: ["settings that are invalid", %i[unknown_option invalid_value malformed given_twice]],
        unread_settings: ["settings that nothing reads",
                          %i[other_allocator misspelt_variable wrong_prefix ignored_environment without_effect]],
        harmful_settings: ["settings that do harm", %i[never_returned debugging background_thread huge_pages]],
        too_many_arenas: ["too many arenas for threads and processors", %i[too_many_arenas]]
      }.freeze
      private_constant :NO_AMOUNT, :SEE, :PROBLEMS

      SETTINGS = [
        Rule.new(
          id: :idle_allocator,
          subject: "an allocator loaded but idle",
          affected: ->(f) { f.idle_allocators.empty? ? 0 : f.bytes(:malloc) || 0 },
          present: ->(f) { f.idle_allocators.any? },
          recoverable: "The blocks stay with the allocator that gave them out.",
          title: lambda do |f, bytes|
            "#{f.idle_allocators.map(&:name).join(' and ')} is loaded, but #{f.allocator.name} serves " \
              "#{bytes.zero? ? 'malloc' : "the #{size(bytes)} of malloc"}"
          end,
          explanation: lambda do |f|
            f.idle_allocators.map { |other| "#{other.path}: #{other.reason}" }.join("; ")
          end,
          evidence: lambda do |f|
            { serves: f.allocator.name, path: f.allocator.path, idle: f.idle_allocators.map(&:path),
              malloc_bytes: f.bytes(:malloc), LD_PRELOAD: f.environment.variables[:LD_PRELOAD] }
          end,
          remedy: lambda do |f|
            idle = f.idle_allocators.first
            "memscope exec --allocator #{idle.name == :jemalloc ? 'jemalloc' : idle.path} -- COMMAND"
          end,
          remedy_cost: "a restart"
        ),
        Rule.new(
          id: :private_allocator,
          subject: "private allocators",
          present: ->(f) { f.private_allocators.any? },
          severity: :info,
          recoverable: NO_AMOUNT,
          title: ->(f) { "a library brings a #{f.private_allocators.map(&:name).join(' and ')} of its own" },
          explanation: lambda do |f|
            f.private_allocators.map { |other| "#{other.path} (#{other.prefix}): #{other.reason}" }.join("; ")
          end,
          evidence: ->(f) { { paths: f.private_allocators.map(&:path), prefixes: f.private_allocators.map(&:prefix) } }
        ),
        Rule.new(
          id: :preload_without_effect,
          subject: "LD_PRELOAD without effect",
          present: :missing_preload,
          recoverable: NO_AMOUNT,
          title: ->(f) { "LD_PRELOAD names #{f.missing_preload}, but #{f.allocator.name} serves malloc" },
          explanation: "The library is not in this process: the dynamic linker did not find it, or could not use it, " \
                       "and only says so on standard error.",
          evidence: ->(f) { { LD_PRELOAD: f.environment.variables[:LD_PRELOAD], serves: f.allocator.name } },
          remedy: "memscope exec -- COMMAND",
          remedy_cost: "a restart"
        ),
        *PROBLEMS.map do |id, (subject, problems)|
          Rule.new(
            id: id,
            subject: subject,
            present: ->(f) { f.problems(problems).any? },
            severity: ->(f) { id != :too_many_arenas && f.warnings?(problems) ? :warning : :info },
            recoverable: NO_AMOUNT,
            title: ->(f) { f.problems(problems).first.text },
            explanation: lambda do |f|
              [*f.problems(problems).drop(1).map { |problem| "#{problem.text}." }, SEE].join(" ")
            end,
            evidence: lambda do |f|
              { problems: f.problems(problems).map(&:to_h), recommended: f.lint.recommended }
            end,
            remedy: ->(f) { f.problems(problems).filter_map(&:replacement).uniq.join("\n") },
            remedy_cost: "a restart, unless it is Ruby"
          )
        end
      ].freeze
      private_constant :SETTINGS
    end
  end
end
