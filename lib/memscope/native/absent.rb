# frozen_string_literal: true

module Memscope
  module Native
    # Known with the extension only.
    MAX_DECAY_MS = nil

    # What takes the extension's place.
    module Absent
      NOTHING = { wall_us: 0, gvl_us: 0, scratch_bytes: 0 }.freeze
      private_constant :NOTHING

      # @param error [LoadError] what loading the extension came to
      # @return [String] why the extension is not there
      def self.reason(error)
        unless RUBY_ENGINE == "ruby"
          return "memscope's extension is written for CRuby; this is #{RUBY_ENGINE} #{RUBY_ENGINE_VERSION}"
        end
        return "memscope reads Linux's /proc; this is #{RUBY_PLATFORM}" unless RUBY_PLATFORM.include?("linux")

        "memscope's extension could not be loaded: #{error.message}"
      end

      def ledger(_deep, _shared, _objects, _strict) = answer(:T2, source: :none, rows: [])

      def mappings = answer(:T2, source: :none, mappings: [])

      def allocator
        answer(:T0, name: :unknown, proved: false, proof: "nothing was tried", others: [])
      end

      def allocator_settings = { settings: [], reasons: {}, confs: [], conf_variable: nil }

      def allocator_inputs = { variables: {}, secure: false, current: {}, mallopt_callers: [] }

      def environment_at_load(name) = ENV.fetch(name, nil)

      def snapshot(_malloc) = answer(:T1, gc: GC.stat)

      def process_memory(_process) = answer(:T2)

      def cgroup(_process, _proc_root, _cgroup_root) = answer(:T1, version: :none)

      def ruby_heap(_collect) = answer(:T2, slot_sizes: [])

      def arenas(_advance) = answer(:T1, allocator: :unknown, arenas: [])

      def size_classes(arena, _advance) = answer(:T1, allocator: :unknown, arena: arena, classes: [])

      def file_capabilities(_path) = nil

      def levers = %i[tcache decay purge trim collect].to_h { |lever| [lever, Native.absence] }

      def with_exclusive_purge # rubocop:disable Naming/PredicateMethod -- it does
        yield
        true
      end

      def arena_limit = nil

      def tune(*) = answer(:T1, allocator: :unknown, arenas: [])

      def profile_runs? = false

      def profile_session = 0

      def malloc_profile = nil

      def stop_profile = nil

      def profile_inflation = nil

      def tag(_name) = yield

      def next_generation = 0

      private

      def answer(tier, **known)
        { **known, reasons: { extension: Native.absence }, cost: { tier: tier, **NOTHING } }
      end
    end
    private_constant :Absent
  end
end
