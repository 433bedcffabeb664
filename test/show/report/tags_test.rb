# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/planted_tags"
require_relative "../../support/printed"
require "memscope/show/report"
require "memscope/show/report/tags"

class TagsPageTest < MemscopeTest
  include Printed
  include PlantedTags

  def test_an_order_within_its_error_says_so
    close = tags(tag(40, name: "a"), tag(41, name: "b"), tag(12, name: "c"))

    assert_match(/The first 2 tags differ by less than two standard errors/, text(close).split.join(" "))
    refute_includes text(tags(tag(90, name: "a"), tag(12, name: "c"))), "standard errors: their"
  end

  # In a reading from elsewhere.
  def test_a_number_without_an_error
    given = JSON.parse(tags(tag(40, name: "a"), tag(41, name: "b")).to_json)
    given["rows"].first["retained_objects_error"] = nil

    assert_match(/ – .* a$/, text(Memscope::Tags.from_h(given), unicode: true))
  end

  def test_the_table
    said = text(tags(tag(16), tag(0, name: "b", runs: 3, counted: 0, live_samples: 0)), unicode: true)

    assert_match(/^ *retained +± +runs +objects +malloc B +live MiB +tag$/, said)
    assert_match(/^ *2,000 +\d+ +1,000 +1,000 +– +0\.1 +a$/, said)
    assert_match(/^ *– +– +3 +– +– +– +b$/, said)
  end

  def test_numbers_below_ten_have_a_decimal
    decimals = [3.44, -9.94, 10.2, 2986.6].map { |number| Memscope::Report::TagsPage.decimal(number) }

    assert_equal %w[3.4 -9.9 10 2,987], decimals
  end
end
