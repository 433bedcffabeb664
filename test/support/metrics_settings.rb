# frozen_string_literal: true

# The configuration that metrics read, and reports of Puma's workers, made by hand.
module MetricsSettings
  Settings = Struct.new(:metrics_ledger_interval_seconds, :metrics_arenas, :metrics_objects)
  Worker = Struct.new(:index, :pid, :role, :phase, :booted_at, :at, :rss_bytes, :pss_bytes, :uss_bytes, :shared_bytes,
                      :unshared_since_fork_bytes, :rows, :leaves, :unverified_rows, :snapshot, :arenas, :tags, :costs,
                      :verdict, :policy_decisions, keyword_init: true) do
    def ledger_rss_bytes = rows&.values&.sum
  end
  BOOT = Time.utc(2026, 11, 21, 2)

  # For children: the same settings there.
  CHILD = <<~RUBY
    def (Memscope::Configuration).current = @settings ||= Struct.new(
      :metrics_ledger_interval_seconds, :metrics_arenas, :metrics_objects
    ).new
    def Memscope.configuration=(values)
      current = Memscope::Configuration.current
      current.metrics_ledger_interval_seconds, current.metrics_arenas, current.metrics_objects = values
    end
  RUBY

  module_function

  # Replaces the settings while the block runs.
  def configured(interval: nil, arenas: false, objects: false, &block)
    replacing(Memscope::Configuration, :current, Settings.new(interval, arenas, objects), &block)
  end

  # Replaces the workers' reports while the block runs.
  def clustered(*workers, &)
    replacing(Memscope::Metrics, :reports, workers, &)
  end

  # Makes a method of a module return the value or, if that is a Proc, the Proc's result.
  def replacing(object, name, value)
    original = object.method(name)
    hidden = object.singleton_class.private_method_defined?(name)
    object.singleton_class.send(:remove_method, name)
    object.define_singleton_method(name) { value.is_a?(Proc) ? value.call : value }
    yield
  ensure
    object.singleton_class.send(:remove_method, name)
    object.define_singleton_method(name, original)
    object.singleton_class.send(:private, name) if hidden
  end

  def worker(index, pid: 1_000 + index, **given)
    rows = { malloc: 60_000_000 + index, ruby_heap: 30_000_000, unattributed: 0 }
    leaves = { "malloc/in_use": 61_000_000 + index, "malloc/not_resident": -1_000_000,
               "ruby_heap/live_slots": 30_000_000, unattributed: 0 }
    Worker.new(index: index, pid: pid, role: :worker, phase: 0, booted_at: BOOT, at: BOOT + 90, rows: rows,
               leaves: leaves, unverified_rows: 0, snapshot: snapshot(index),
               costs: { ledger: { wall_us: 5, gvl_us: 1 } },
               rss_bytes: rows.values.sum, pss_bytes: 50_000_000, uss_bytes: 40_000_000, shared_bytes: 50_000_000,
               unshared_since_fork_bytes: 7, **given)
  end

  # A snapshot under jemalloc, with numbers that identify the worker.
  def snapshot(index)
    Memscope::Snapshot.capture({ rss_bytes: 9, virtual_bytes: 500 + index, shared_bytes: 7, reasons: {},
                                 gc: { heap_live_slots: 40 + index, minor_gc_count: 10 + index, major_gc_count: 3 },
                                 jemalloc: { allocated_bytes: 70 + index, pdirty: 2, page_bytes: 4096 },
                                 cost: { tier: :T1, wall_us: 1, gvl_us: 1, scratch_bytes: 0 } })
  end

  def master = worker(0, pid: 999, role: :master, index: nil, unshared_since_fork_bytes: nil, phase: nil)
end
