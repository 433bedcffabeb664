# frozen_string_literal: true

require_relative "../support/profiled_pages"
require_relative "../support/web_case"
require "zlib"

# /debug/pprof/heap. For objects, see test/web/pages/profile_test.rb.
class WebPprofTest < WebCase
  include ProfiledPages

  def test_for_go_without_a_profile_is_a_sentence
    response = page("/debug/pprof/heap")

    assert_equal [404, "text/plain; charset=utf-8"], [response.status, response["content-type"]]
    assert_match(/\ANo malloc profile runs in this process \(pid #{Process.pid}\)\. Start one/, response.body)
  end

  def test_for_go
    start
    keep
    response = page("/debug/pprof/heap")

    assert_equal [200, "application/octet-stream"], [response.status, response["content-type"]]
    assert_includes Zlib.gunzip(response.body.b), "inuse_space"
  end

  # A client that asks for a difference must not take the whole profile for it.
  def test_a_difference_for_go_is_refused
    refused = page("/debug/pprof/heap?seconds=30")

    assert_equal 400, refused.status
    assert_match(/\Aseconds: given "30", allowed: none; compare two profiles /, refused.body)
  end

  # Go answers debug=1 with text; a client that requests that could not read a binary answer.
  def test_the_text_of_go_is_refused
    start
    %w[1 2 x -1 00].each do |given|
      refused = page("/debug/pprof/heap?debug=#{given}")

      assert_equal [400, "text/plain; charset=utf-8"], [refused.status, refused["content-type"]]
      assert_equal "debug: given #{given.inspect}, allowed: 0; for readable text, see /profile.txt.\n", refused.body
    end
    assert_equal 400, page("/debug/pprof/heap?debug=1&seconds=1").status
    ["0", ""].each { |given| assert_equal 200, page("/debug/pprof/heap?debug=#{given}").status, given }
    assert_equal 200, page("/profile.txt").status
  end

  def test_closed_to_others
    start

    assert_equal 200, page("/debug/pprof/heap").status
    assert_equal 403, get("/debug/pprof/heap", on: application(open: false)).status
  end
end
