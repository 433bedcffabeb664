# frozen_string_literal: true

require_relative "../support/web_case"

# Areas are bytes.
class WebTreemapTest < WebCase
  TILE = /<svg x="([\d.]+)%" y="([\d.]+)%" width="([\d.]+)%" height="([\d.]+)%"/

  def drawn(*bytes, name: "one")
    tiles = bytes.map.with_index(1) do |size, mark|
      Memscope::Web::Treemap::Tile.new("holder", mark.to_s, "holder-#{mark}", name, size)
    end
    Memscope::Web::Treemap.new(tiles).drawn(label: "all")
  end

  def rectangles(markup) = markup.scan(TILE).map { |sides| sides.map(&:to_f) }

  def test_areas_are_in_proportion_and_fill_the_map
    random = Random.new(7)
    [[1], [5, 5], [9_000_000_000, 1], *Array.new(200) { Array.new(random.rand(1..12)) { random.rand(1..(1 << 33)) } }]
      .each do |bytes|
      found = rectangles(drawn(*bytes))
      areas = found.map { |_left, _top, width, height| width * height / 10_000 }

      bytes.sort.reverse.zip(areas).each { |size, area| assert_in_delta size.fdiv(bytes.sum), area, 1e-5 }
      found.each { |left, top, width, height| assert_operator [left + width, top + height].max, :<=, 100.001 }
      found.combination(2) { |one, other| refute overlap?(one, other), bytes }
    end
  end

  def overlap?(one, other)
    [0, 1].all? do |axis|
      beginnings, ends = [one, other].map { |box| [box[axis], box[axis] + box[axis + 2]] }.transpose
      beginnings.max + 0.01 < ends.min
    end
  end

  def test_names_are_escaped
    markup = drawn(7 << 20, 1, name: "<Class> & \"more\"")

    assert_includes markup, 'aria-label="1: &lt;Class&gt; &amp; &quot;more&quot;, 7.0 MiB"'
    refute_includes markup, "<Class>"
  end
end
