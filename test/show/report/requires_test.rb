# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/planted_requires"

class RequiresPageTest < MemscopeTest
  include PlantedRequires

  # The costly file is the innermost one.
  def test_the_page_of_files_that_require_each_other_very_deeply
    files = nodes.first(2) + Array.new(4_999) { |index| { **nodes[1], id: index + 2, parent: index + 1 } }
    files.last[:objects_bytes] = 5 << 20

    text = reading(nodes: files, again: []).to_s(limit: 1)

    assert_match(%r{^ +5\.0 +5\.0  a: /gems/a-1/lib/a\.rb \(from /gems/a-1/lib/a\.rb\)$}, text)
  end

  def test_the_page_in_ascii
    text = reading.to_s(unicode: false, width: 60)

    assert_predicate text, :ascii_only?
    assert_operator text.lines.map { |line| line.chomp.length }.max, :<=, 60
    assert_includes text.gsub(/\s+/, " "), "6 files, 1 of them by autoload; 110 B outside, 10 B of no file"
    assert_match(/^ +0\.0 +0\.0  ruby: .*set\.rb$/, text)
    assert_match(/^ +0\.0 +0\.0  b: .*late\.rb \(lazy\)$/, text)
  end
end
