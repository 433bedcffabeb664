# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/exporting"

class YabedaTest < MemscopeTest
  include Exporting

  YABEDA = <<~RUBY.freeze
    #{Exporting::CONFIGURED}
    require "yabeda/prometheus"
    require "memscope/yabeda"
    Yabeda.configure!
    pages = Array.new(3) do
      GC.start
      Yabeda.collect!
      [GC.count, Prometheus::Client::Formats::Text.marshal(Prometheus::Client.registry)]
    end
    puts({ pages: pages, ledger: Yabeda.memscope.ledger_bytes.values.size }.to_json)
  RUBY

  def test_yabeda
    read = child(YABEDA).json

    read["pages"].each do |collected, page|
      assert_rows_sum(page)
      assert_equal(collected, page.scan(/^memscope_gc_collections_total\{.*\} (\S+)$/).sum { |(value)| value.to_i })
    end
    assert_operator read["ledger"], :>=, 10
  end
end
