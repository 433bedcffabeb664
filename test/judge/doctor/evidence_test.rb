# frozen_string_literal: true

require_relative "../../test_helper"
require "tmpdir"
require_relative "../../support/bodies"
require_relative "../../support/listening"

# What a diagnosis knows of objects.
class DiagnosisObjectsTest < MemscopeTest
  include Listening

  def test_what_the_process_keeps
    none, graph, both, back, later = child_json(<<~RUBY, requires: %w[json memscope/heap/last_readings])
      Order = Struct.new(:text)
      module Shop; ORDERS = {}; end
      grow = -> { 30_000.times { |number| Shop::ORDERS[Shop::ORDERS.size] = Order.new(number.to_s * 9) } }
      known = -> { Memscope.doctor.evidence.objects&.to_h }
      seen = [known.call]
      grow.call
      Memscope::LastReadings.heap_graph
      seen << known.call
      Memscope::LastReadings.census(gc: true)
      grow.call
      Memscope::LastReadings.census(gc: true)
      seen << known.call
      diagnosis = Memscope.doctor
      back = Memscope::Diagnosis.from_json(diagnosis.to_json)
      seen << (back.evidence.objects == diagnosis.evidence.objects)
      # Paths to something else do not show where memory has accumulated; and nothing is parsed once more.
      Memscope::LastReadings.heap_graph(paths_to: "Order")
      JSON.define_singleton_method(:parse) { |*| raise "parsed again" }
      puts JSON.generate([*seen, known.call])
    RUBY

    assert_nil none
    assert_equal [%w[Shop Hash], "Order", 30_000, nil],
                 [graph["holder"]["steps"].map { |step| step["name"] }, graph["holder"]["held_class"],
                  graph["holder"]["held_count"], graph["grown"]]
    assert_includes %w[Order String], both["grown"]["name"]
    # Conservative marking may keep a few until the second collection.
    assert_operator both["grown"]["rows"].find { |row| row["name"] == "count" }["change"], :>=, 29_900
    assert back
    assert_equal both, later
  end

  # A store of certificates reports no memory of its own.
  def test_which_objects_without_a_size_came
    unsized, counts = child_json(<<~RUBY, requires: %w[json openssl memscope/heap/last_readings])
      Memscope::LastReadings.census(gc: true)
      kept = Array.new(500) { OpenSSL::X509::Store.new }
      Memscope::LastReadings.census(gc: true)
      objects = Memscope.doctor.evidence.objects
      kept.clear
      GC.start
      2.times { Memscope::LastReadings.census(gc: true) }
      later = Memscope.doctor.evidence.objects&.unsized&.map(&:name)
      puts JSON.generate([objects.to_h[:unsized], [objects.census_seconds.positive?, later]])
    RUBY

    assert_equal "OpenSSL::X509::Store", unsized.first["name"]
    assert_includes 490..500, unsized.first["change"]
    assert counts.first
    refute_includes counts.last.to_a, "OpenSSL::X509::Store"
  end

  # What `memscope heap --pid` and `memscope census --pid` ask a process for.
  def test_what_was_asked_over_the_socket
    process = listening(<<~RUBY)
      Order = Struct.new(:text)
      module Shop; ORDERS = []; end
      Thread.new do
        loop do
          2_000.times { Shop::ORDERS << Order.new("order " * 50) }
          sleep 0.02
        end
      end
    RUBY
    client = Memscope::Client.new(process.pid)

    assert_nil client.call(:doctor).evidence.objects
    graph = client.call(:heap_graph, top: 100)
    client.call(:census)
    sleep 0.5 # 2,000 orders each 20 ms
    client.call(:census)
    client.call(:heap_graph, paths_to: "Order")
    objects = client.call(:doctor).evidence.objects

    assert_equal graph.paths.first, objects.holder
    assert_equal ["Shop::ORDERS → Array", "Order"], [objects.holder.to_s, objects.holder.held_class]
    assert_includes %w[Order String Array], objects.grown.name
    kept = client.call(:kept_heap_graph).last

    assert_equal "Order", kept.paths_to
    client.call(:heap_graph, top: 100)

    assert_equal 30, client.call(:kept_heap_graph).last.retained.size
  end

  # As V8 in mini_racer_extension.so.
  def test_which_extensions_map_memory_themselves
    Dir.mktmpdir do |directory|
      files = { "maps.so" => "#{'x' * (3 << 20)}\0mmap64\0", "plain.so" => "\0malloc\0mmapped\0" }.map do |name, text|
        File.join(directory, name).tap { |path| File.binwrite(path, text) }
      end
      $LOADED_FEATURES.concat(files)
      few, many = [5, 50].map do |mebibytes|
        Memscope::Ledger.capture(Bodies.ledger(rows: [Bodies.row(:unattributed, "unattributed", mebibytes)]))
      end

      assert_nil Memscope::Diagnosis::Evidence.send(:mappers, few)
      assert_includes Memscope::Diagnosis::Evidence.send(:mappers, many), "maps.so"
      refute_includes Memscope::Diagnosis::Evidence.send(:mappers, many), "plain.so"
    ensure
      $LOADED_FEATURES.reject! { |path| path.start_with?(directory) }
    end
  end
end
