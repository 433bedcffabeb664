# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      NO_AMOUNT = "This finding is about a setting."
      RESTART = "requires a restart"
      SEE = "`memscope doctor --settings` lists all settings and recommends values."

      # Rules on the problems that Memscope.lint finds: the rule's id, its subject, and the ids of the problems.
      PROBLEMS = {
        invalid_settings: ["invalid settings", %i[invalid_value misspelt_variable ignored_environment]],
        harmful_settings: ["harmful settings",
                           %i[never_returned debugging background_thread huge_pages]],
        too_many_arenas: ["too many arenas for its threads and CPUs", %i[too_many_arenas]]
      }.freeze

      SETTINGS = [
        rule(:idle_allocator, "an allocator that is loaded but idle",
             -> { row_bytes(:malloc) || 0 }) do |bytes|
          # They serve neither malloc nor, as far as they report, a library.
          idle = allocator.others.select { |one| one.prefix.empty? && !one.allocated_bytes&.positive? }
          next if idle.empty?

          jemalloc = idle.first.name == :jemalloc
          { title: "#{idle.map(&:name).join(' and ')} is loaded, but " \
                   "#{allocator.name} serves malloc (#{size(bytes)})",
            why: idle.map { |other| "#{other.path}: #{other.reason}" }.join("; "),
            returns: "The blocks stay with the allocator that allocated them.",
            remedy: ["memscope exec --allocator #{jemalloc ? 'jemalloc' : idle[0].path} -- COMMAND",
                     RESTART],
            evidence: { LD_PRELOAD: environment.variables[:LD_PRELOAD] } }
        end,
        rule(:preload_without_effect, "LD_PRELOAD without effect") do
          name = environment.variables[:LD_PRELOAD]&.slice(/jemalloc|mimalloc|tcmalloc/)
          next if name.nil? || [allocator, *allocator.others].any? { |found| found.name.name == name }

          { title: "LD_PRELOAD names #{name}, but #{allocator.name} serves malloc",
            why: "The library is not loaded: the dynamic linker says why on standard error only.",
            returns: NO_AMOUNT, remedy: ["memscope exec -- COMMAND", RESTART],
            evidence: { LD_PRELOAD: environment.variables[:LD_PRELOAD] } }
        end,
        *PROBLEMS.map do |id, (subject, ids)|
          rule(id, subject) do
            problems = lint.problems.select { |problem| ids.include?(problem.id) }
            next if problems.empty?

            remedies = problems.filter_map(&:replacement).uniq
            now = remedies.grep(/\AMemscope\./) # Ruby code
            cost = { [] => RESTART, remedies => "takes effect at once" }
                   .fetch(now, "#{RESTART}, except for the Ruby code")
            others = problems.drop(1).map(&:text)
            { title: problems.first.text, severity: problems.first.severity, returns: NO_AMOUNT,
              why: [*others.map { |text| text.end_with?("?") ? text : "#{text}." }, SEE],
              evidence: { problems: problems.map(&:id) },
              remedy: ([remedies.join("\n"), cost] unless remedies.empty?) }
          end
        end
      ].freeze
      private_constant :NO_AMOUNT, :RESTART, :SEE, :PROBLEMS, :SETTINGS
    end
  end
end
