# frozen_string_literal: true

require_relative "../test_helper"

# What a diagnosis knows of objects.
class DiagnosisObjectsTest < MemscopeTest
  def test_what_the_process_keeps
    none, graph, both, back = child_json(<<~RUBY, requires: %w[json memscope])
      Order = Struct.new(:text)
      module Shop; ORDERS = {}; end
      grow = -> { 30_000.times { |number| Shop::ORDERS[Shop::ORDERS.size] = Order.new(number.to_s * 9) } }
      known = -> { Memscope.doctor.evidence.objects&.to_h }
      seen = [known.call]
      grow.call
      Memscope::HeapGraph::Kept.take
      seen << known.call
      Memscope::Census::Kept.take(gc: true)
      grow.call
      Memscope::Census::Kept.take(gc: true)
      seen << known.call
      diagnosis = Memscope.doctor
      back = Memscope::Diagnosis.from_json(diagnosis.to_json)
      puts JSON.generate([*seen, back.evidence.objects == diagnosis.evidence.objects])
    RUBY

    assert_nil none
    assert_equal ["Shop::ORDERS → Hash", "Order", 30_000, nil],
                 graph.values_at("holder", "held_class", "held_count", "grown_class")
    assert_includes %w[Order String], both["grown_class"]
    # Conservative marking may keep a few until the second collection.
    assert_operator both["grown_count"], :>=, 29_900
    assert back
  end
end
