# frozen_string_literal: true

require_relative "../../test_helper"

class KeptCensusesTest < MemscopeTest
  def test_the_last_two_are_kept_by_the_process_that_took_them
    none, one, two, child = child_json(<<~RUBY)
      require "json"
      kept = Memscope::Census::Kept
      sizes = [kept.all.size]
      kept.take
      sizes << kept.all.size
      taken = [kept.take.last, kept.take(gc: true).last]
      same = kept.all == taken
      reading, writing = IO.pipe
      fork { writing.write(kept.all.size); exit!(0) }
      writing.close
      puts JSON.generate([*sizes, same && kept.all.last.collected?, reading.read.to_i])
    RUBY

    assert_equal [0, 1, true, 0], [none, one, two, child]
  end
end
