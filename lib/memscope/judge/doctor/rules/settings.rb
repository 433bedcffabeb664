# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      RESTART = "requires a restart"
      SEE = "`memscope doctor --settings` lists all settings and recommends values."

      # Rules on the problems that Memscope.lint finds: the rule's id, its subject, the ids of the problems, and the
      # memory that they affect.
      PROBLEMS = {
        invalid_settings: ["invalid settings",
                           %i[invalid_value misspelt_variable ignored_environment other_allocator]],
        harmful_settings: ["harmful settings",
                           %i[never_returned debugging background_thread huge_pages]],
        too_many_arenas: ["too many arenas for its threads and CPUs", %i[too_many_arenas]],
        idle_allocator: ["an allocator that is loaded but idle", %i[idle_allocator], -> { row_bytes(:malloc) || 0 }],
        preload_without_effect: ["LD_PRELOAD without effect", %i[preload_without_effect]],
        crashing_profiler: ["a jemalloc whose profiling crashes", %i[crashing_profiler]]
      }.freeze

      PROBLEMS.each do |id, (subject, ids, affected)|
        rule(id, subject, affected) do
          problems = lint.problems.select { |problem| ids.include?(problem.id) }
          next if problems.empty?

          remedies = problems.filter_map(&:replacement).uniq
          now = remedies.grep(/\AMemscope\./) # Ruby code
          cost = { [] => RESTART, remedies => "takes effect at once" }
                 .fetch(now, "#{RESTART}, except for the Ruby code")
          others = problems.drop(1).map(&:text)
          { title: problems.first.text, severity: problems.first.severity, returns: "This finding is about a setting.",
            why: [*others.map { |text| text.end_with?("?") ? text : "#{text}." }, SEE],
            evidence: { problems: problems.map(&:id) },
            remedy: ([remedies.join("\n"), cost] unless remedies.empty?) }
        end
      end
      private_constant :RESTART, :SEE, :PROBLEMS
    end
  end
end
