# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      NO_AMOUNT = "This finding is about a setting."
      RESTART = "requires a restart"
      # When the remedies take effect; some of them may be Ruby code.
      WHEN = lambda do |remedies|
        code = remedies.grep(/\AMemscope\./)
        next RESTART if code.empty?

        code == remedies ? "takes effect at once" : "#{RESTART}, except for the Ruby code"
      end
      SEE = "`memscope doctor --settings` lists all settings and recommends values."

      # Rules on the problems that Memscope.lint finds: the rule's id, its subject, and the ids of the problems.
      PROBLEMS = {
        invalid_settings: ["invalid settings", %i[invalid_value misspelt_variable ignored_environment]],
        harmful_settings: ["harmful settings", %i[never_returned debugging background_thread huge_pages]],
        too_many_arenas: ["too many arenas for its threads and CPUs", %i[too_many_arenas]]
      }.freeze

      SETTINGS = table(
        idle_allocator: {
          subject: "an allocator that is loaded but idle",
          affected: ->(f) { f.idle_allocators.empty? ? 0 : f.bytes(:malloc) || 0 },
          present: ->(f) { f.idle_allocators.any? },
          recoverable: "The blocks stay with the allocator that allocated them.",
          title: lambda do |f, bytes|
            "#{f.idle_allocators.map(&:name).join(' and ')} is loaded, but #{f.allocator.name} serves malloc" \
              "#{" (#{size(bytes)})" unless bytes.zero?}"
          end,
          explanation: ->(f) { f.idle_allocators.map { |other| "#{other.path}: #{other.reason}" }.join("; ") },
          evidence: lambda do |f|
            { serves: f.allocator.name, path: f.allocator.path, idle: f.idle_allocators.map(&:path),
              malloc_bytes: f.bytes(:malloc), LD_PRELOAD: f.environment.variables[:LD_PRELOAD] }
          end,
          remedy: lambda do |f|
            idle = f.idle_allocators.first
            ["memscope exec --allocator #{idle.name == :jemalloc ? 'jemalloc' : idle.path} -- COMMAND", RESTART]
          end
        },
        preload_without_effect: {
          subject: "LD_PRELOAD without effect",
          present: :missing_preload,
          recoverable: NO_AMOUNT,
          title: ->(f) { "LD_PRELOAD names #{f.missing_preload}, but #{f.allocator.name} serves malloc" },
          explanation: "The library is not loaded: the dynamic linker did not find it or could not use it, and " \
                       "reports that on standard error only.",
          evidence: ->(f) { { LD_PRELOAD: f.environment.variables[:LD_PRELOAD], serves: f.allocator.name } },
          remedy: ["memscope exec -- COMMAND", RESTART]
        },
        **PROBLEMS.to_h do |id, (subject, problems)|
          [id, {
            subject: subject,
            present: ->(f) { f.problems(problems).any? },
            severity: ->(f) { f.problems(problems).first.severity },
            recoverable: NO_AMOUNT,
            title: ->(f) { f.problems(problems).first.text },
            explanation: lambda do |f|
              others = f.problems(problems).drop(1).map(&:text)
              [*others.map { |text| text.end_with?("?") ? text : "#{text}." }, SEE].join(" ")
            end,
            evidence: ->(f) { { problems: f.problems(problems).map(&:to_h), recommended: f.lint.recommended } },
            remedy: lambda do |f|
              remedies = f.problems(problems).filter_map(&:replacement).uniq
              [remedies.join("\n"), WHEN.call(remedies)] unless remedies.empty?
            end
          }]
        end
      )
      private_constant :NO_AMOUNT, :RESTART, :WHEN, :SEE, :PROBLEMS, :SETTINGS
    end
  end
end
