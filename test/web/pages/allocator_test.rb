# frozen_string_literal: true

require_relative "../../support/web_case"

# The page /allocator.
class WebAllocatorTest < WebCase
  def test_each_reading_has_a_section
    body = get("/allocator").body
    classes = Memscope.allocator.name == :jemalloc ? ["Size classes"] : []

    assert_equal ["Arenas", *classes, "Free but resident", "Ruby heap", "Mappings"],
                 body.scan(%r{<h2 id="\w+-title">([^<]+)</h2>}).flatten
    assert_includes body, "serves malloc (proved): "
    assert_includes body, '<a href="/memscope/mappings.json">JSON</a>'
  end

  def test_json_has_each_reading
    body = JSON.parse(get("/allocator.json").body)

    assert_equal %w[allocator arenas size_classes fragmentation ruby_heap mappings], body.keys
    body.each { |name, reading| assert_equal name, reading["kind"] }
  end

  # Text has all mappings, the page only the largest.
  def test_the_largest_mappings_come_first
    rows = get("/allocator").body[/id="mappings".*/m].scan(%r{<th scope="row".*?</tr>}m)
    resident = rows.map { |row| row.scan(%r{<td class="num">([\d,]*)</td>}).flatten[1].delete(",").to_i }

    assert_operator rows.last, :include?, " mappings"
    assert_equal resident[0], resident[0...-2].max
  end
end
