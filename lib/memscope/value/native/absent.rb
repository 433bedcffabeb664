# frozen_string_literal: true

module Memscope
  module Native
    # Known with the extension only.
    MAX_DECAY_MS = nil
    JEMALLOC_COUNTERS = [].freeze

    # Takes the extension's place: returns the values that Ruby alone knows, with the reason for the rest.
    module Absent
      # For each reading, its tier and the fields that are known without the extension.
      READINGS = {
        ledger: [:T2, { source: :none, rows: [] }], mappings: [:T2, { source: :none, mappings: [] }],
        allocator: [:T0, { name: :unknown, proved: false, proof: "nothing was tried", others: [] }],
        process_memory: [:T2, {}], cgroup: [:T1, { version: :none }], ruby_heap: [:T2, { slot_sizes: [] }],
        census: [:T3, { classes: [], types: [], imemos: [], slot_sizes: [], ages: [] }],
        heap_graph: [:T3, { retained: [], dominators: [], paths: [], roots: [], garbage: [] }],
        heap_growth: [:T3, { classes: [], sites: [], paths: [] }], tags: [:T2, { tags: [] }],
        arenas: [:T1, { allocator: :unknown, arenas: [] }],
        judge: [:T1, { verdict: :too_early, shares: {}, confidence: 0.0, evidence: { points: 0 } }],
        tune: [:T1, { allocator: :unknown, arenas: [] }]
      }.freeze
      # What the other methods return, and those that return nothing.
      ANSWERS = {
        allocator_settings: { settings: [], reasons: {}, confs: [], conf_variable: nil }.freeze,
        allocator_inputs: { variables: {}, secure: false, current: {}, mallopt_callers: [] }.freeze,
        history_series: {}.freeze, history_buckets: {}.freeze, profile_session: 0, object_profile_session: 0,
        next_generation: 0, write_black_box: false,
        **%i[profile_runs? object_profile_runs? tags_begun?].to_h { |name| [name, false] },
        **%i[inherited open_history open_black_box read_black_box terminate].to_h { |name| [name, :unsupported] }
      }.freeze
      NOTHING = %i[gc_pause_ms await_gc collect_garbage malloc_profile stop_profile profile_inflation jemalloc_profiling
                   object_profile stop_object_profile object_profile_with_objects measuring halt_measurement clear_stack
                   history close_black_box black_box hold_process process_status].freeze

      # @param error [LoadError] of the extension
      # @return [String] why the extension is not loaded
      def self.reason(error)
        return Reasons.sentence([:not_cruby, RUBY_ENGINE, RUBY_ENGINE_VERSION]) unless RUBY_ENGINE == "ruby"
        return Reasons.sentence([:not_linux, RUBY_PLATFORM]) unless RUBY_PLATFORM.include?("linux")

        binary = Dir[File.expand_path("../../*.*/memscope.so", __dir__)].any?
        why = binary ? [:binary_unloadable, RUBY_VERSION] : [:extension_unloadable]
        Reasons.sentence([*why, error.message])
      end

      READINGS.each { |name, (tier, known)| define_method(name) { |*| answer(tier, **known) } }
      ANSWERS.each { |name, value| define_method(name) { |*| value } }
      NOTHING.each { |name| define_method(name) { |*| nil } }

      def snapshot(_malloc) = answer(:T1, gc: GC.stat)

      def heap_graph_of_dump(*) = heap_graph

      def size_classes(arena, _advance) = answer(:T1, allocator: :unknown, arena: arena, classes: [])

      def environment_at_load(name) = ENV.fetch(name, nil)

      def object_blocks(*) = answer(:T3, finished_gc: false, ledger: ledger)

      # Why nothing was written.
      def dump(*) = absence
      def convert_dump(*) = absence

      def levers = %i[tcache decay purge trim collect].to_h { |lever| [lever, absence] }

      def with_exclusive_purge # rubocop:disable Naming/PredicateMethod -- an action, not a question
        yield
        true
      end

      def tag(_name) = yield

      def measure(*) = [yield, answer(:T3)]

      private

      def answer(tier, **known)
        { **known, reasons: { extension: absence }, cost: { tier: tier, wall_us: 0, gvl_us: 0, scratch_bytes: 0 } }
      end
    end
  end
end
