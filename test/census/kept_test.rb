# frozen_string_literal: true

require_relative "../test_helper"

class KeptCensusesTest < MemscopeTest
  def test_the_last_two_are_kept_by_the_process_that_took_them
    none, one, two, child = child_json(<<~RUBY)
      require "json"
      kept = Memscope::Census::Kept
      sizes = [kept.bodies.size]
      kept.take
      sizes << kept.bodies.size
      taken = [kept.take, kept.take(gc: true)]
      same = kept.bodies.map { |body| Memscope::Census.from_h(body).total_count } == taken
      reading, writing = IO.pipe
      fork { writing.write(kept.bodies.size); exit!(0) }
      writing.close
      puts JSON.generate([*sizes, same && kept.bodies.last["collected"], reading.read.to_i])
    RUBY

    assert_equal [0, 1, true, 0], [none, one, two, child]
  end
end
