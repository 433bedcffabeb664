# frozen_string_literal: true

require_relative "../support/web_case"

class WebAssetsTest < WebCase
  def test_assets_are_found_by_the_name_of_their_content
    body = get("/nothing").body
    app = application
    body.scan(%r{(?:href|src)="/memscope(/assets/[^"]+)"}).flatten.each do |path|
      response = get(path, on: app)

      assert_equal 200, response.status
      assert_match(/immutable/, response["cache-control"])
    end
  end

  # The colours come from a file of their own.
  def test_every_colour_of_the_style_is_there
    style = get("/assets/memscope.css").body

    assert_includes style.scan(/var\((--[\w-]+)/).flatten, "--malloc"
    assert_empty style.scan(/var\((--[\w-]+)/).flatten.uniq - style.scan(/(--[\w-]+):/).flatten
  end
end
