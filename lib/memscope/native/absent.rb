# frozen_string_literal: true

module Memscope
  module Native
    # What takes the extension's place.
    module Absent
      NOTHING = { wall_us: 0, gvl_us: 0, scratch_bytes: 0 }.freeze
      private_constant :NOTHING

      def ledger(_deep, _shared, _objects, _strict) = answer(:T2, source: :none, rows: [])

      def mappings = answer(:T2, source: :none, mappings: [])

      def allocator
        answer(:T0, name: :unknown, proved: false, proof: "nothing was tried", settings: [], others: [])
      end

      def snapshot(_malloc) = answer(:T1, gc: GC.stat)

      def process_memory = answer(:T2)

      def cgroup(_proc_root, _cgroup_root) = answer(:T1, version: :none)

      def ruby_heap = answer(:T2, slot_sizes: [])

      private

      def answer(tier, **known)
        { **known, reasons: { extension: Memscope.unsupported_reason }, cost: { tier: tier, **NOTHING } }
      end
    end
    private_constant :Absent
  end
end
