# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/process/malloc_conf"

class MallocConfTest < MemscopeTest
  MallocConf = Memscope.const_get(:MallocConf)
  REPORTED = { "narenas" => 4, "tcache_max" => 32_768, "oversize_threshold" => 1 << 20, "dirty_decay_ms" => 10_000,
               "junk" => "false", "zero" => false, "retain" => true }.freeze

  def test_parse_stops_where_jemalloc_does
    [["", [], ""], ["narenas:2", [%w[narenas 2]], nil], ["a:1,b:2,", [%w[a 1], %w[b 2]], ""],
     ["a:1, b:2", [%w[a 1]], " b:2"], ["a", [], "a"], [":1,b:x:y", [["", "1"], %w[b x:y]], nil]]
      .each { |text, pairs, rest| assert_equal [pairs, rest], MallocConf.parse(text), text }
  end

  def test_the_last_text_that_means_the_value_is_its_source
    settings = attribute("narenas:4,dirty_decay_ms:5", "narenas:many", "zero:false,zero:true")

    assert_equal [4, "first", "many", true], settings["narenas"].values_at(:value, :source, :given) + [refused?("many")]
    assert_equal %w[default 5], settings["dirty_decay_ms"].values_at(:source, :given)
    assert_equal %w[default true], settings["zero"].values_at(:source, :given)
    assert_equal({ name: "retain", value: true, source: "default" }, settings["retain"])
  end

  def test_numbers_are_those_of_c
    { "1048576" => true, " 0x100000" => true, "+04000000" => true, "0X100000" => true, "1_048_576" => false,
      "0b100000000000000000000" => false, "1048576 " => false, "0o4000000" => false, "" => false }.each do |text, taken|
      setting = attribute("oversize_threshold:#{text}")["oversize_threshold"]

      assert_equal [taken ? "first" : "default", taken], [setting[:source], setting[:ignored].nil?], text
    end
  end

  def test_narenas_takes_the_word_default
    assert_equal ["default", "default", nil],
                 attribute("narenas:default")["narenas"].values_at(:source, :given, :ignored)
    assert_match(/did not take it/, attribute("zero:default")["zero"][:ignored])
  end

  def test_the_older_name_of_tcache_max
    assert_equal %w[first 15], attribute("lg_tcache_max:15")["tcache_max"].values_at(:source, :given)
    assert_equal %w[default], attribute("lg_tcache_max:40")["tcache_max"].values_at(:source, :given).compact
    assert_equal %w[first 32768], attribute("tcache_max:32768,lg_tcache_max:9")["tcache_max"].values_at(:source, :given)
  end

  def test_what_jemalloc_does_not_report
    known = MallocConf.attribute(settings: reported, confs: [{ source: "first", text: "bin_shards:1-8:2,x:1,narenas" }])
    others = known[:settings].last(3)

    assert_equal([%w[bin_shards 1-8:2], %w[x 1], %w[narenas narenas]],
                 others.map { |other| other.values_at(:name, :given) })
    assert_equal [:bin_shards], known[:reasons].keys
    assert_nil others[0][:ignored]
    assert_match(/no option of this name/, others[1][:ignored])
    assert_match(/malformed/, others[2][:ignored])
  end

  def test_bytes_that_are_no_text
    assert_equal "\u{fffd}", attribute("junk:\xff")["junk"][:given]
  end

  private

  def reported = REPORTED.map { |name, value| { name: name, value: value } }

  # Settings by name, from texts of these sources in this order.
  def attribute(*texts)
    confs = %w[first second third].zip(texts).map { |source, text| { source: source, text: text } }
    MallocConf.attribute(settings: reported, confs: confs)[:settings].to_h { |setting| [setting[:name], setting] }
  end

  def refused?(text) = attribute("narenas:#{text}")["narenas"][:ignored].is_a?(String)
end
