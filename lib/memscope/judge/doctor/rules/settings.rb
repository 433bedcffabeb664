# frozen_string_literal: true

module Memscope
  module Doctor
    module Rules
      # Rules on the problems that Memscope.lint finds: the rule's id, the ids of the problems, and the memory that they
      # affect.
      PROBLEMS = {
        invalid_settings: [%i[invalid_value misspelt_variable ignored_environment other_allocator]],
        harmful_settings: [%i[never_returned debugging background_thread huge_pages]],
        too_many_arenas: [%i[too_many_arenas]],
        idle_allocator: [%i[idle_allocator], -> { row_bytes(:malloc) || 0 }],
        preload_without_effect: [%i[preload_without_effect]],
        crashing_profiler: [%i[crashing_profiler]]
      }.freeze

      PROBLEMS.each do |id, (ids, affected)|
        rule(id, affected) do
          problems = lint.problems.select { |problem| ids.include?(problem.id) }
          next if problems.empty?

          remedies = problems.filter_map(&:replacement).uniq
          now = remedies.grep(/\AMemscope\./) # Ruby code
          cost = { [] => :restart, remedies => :at_once }.fetch(now, :restart_or_at_once)
          others = problems.drop(1).map(&:text)
          { title: problems.first.text, severity: problems.first.severity, returns: :of_a_setting,
            why: [*others.map { |text| text.end_with?("?") ? text : "#{text}." }, :settings],
            evidence: { problems: problems.map(&:id) }, remedy: ([remedies, cost] unless remedies.empty?) }
        end
      end
    end
  end
end
