# frozen_string_literal: true

require_relative "../support/web_case"

# What all pages share.
class WebPageTest < WebCase
  def test_the_menu_has_the_five_pages
    menu = get("/objects", BROWSER).body[%r{<nav aria-label="Pages">.*?</nav>}m]

    assert_equal %w[Overview History Objects Profile Allocator], menu.scan(/>([^<>\n]+)</).flatten
    assert_includes menu, '<a href="/memscope/objects" aria-current="page">Objects</a>'
  end

  def test_what_a_template_shows_is_escaped_once
    template = Memscope::Web::Template.new("<b><%= subject %></b>")

    assert_equal "<b>&lt;i&gt; &amp; &quot;x&quot;</b>", template.result_with_hash(subject: '<i> & "x"')
    assert_equal "<b><i></b>", template.result_with_hash(subject: Memscope::Web::Markup.new("<i>"))
    assert_instance_of Memscope::Web::Markup, Memscope::Web::Markup.of(nil)
  end

  # What a program is called, and what its classes are called, is text.
  def test_prose_has_code_and_no_markup
    page = Memscope::Web::Page.new(nil, nil, actions: false)

    assert_equal "&lt;b&gt; <code>GC.start &amp;&amp; 1</code>", page.send(:prose, "<b> `GC.start && 1`")
    sentences = ["jemalloc keeps", "malloc keeps"].map { |text| page.send(:sentence, text) }
    shares = [[nil, 8], [1, 8], [1, 0]].map { |part, whole| page.send(:percent, part, whole) }

    assert_equal [["jemalloc keeps.", "Malloc keeps."], ["–", "12.5 %", "–"]], [sentences, shares]
  end
end
