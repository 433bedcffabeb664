# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/browser"
require_relative "../support/profiles"
require "cgi/escape"
require "tmpdir"

# The flame graph, in a real browser.
class FlameGraphTest < MemscopeTest
  MEBIBYTE = 1_048_576
  HOSTILE = %(</script><script>document.title="taken"</script><img src=x onerror="document.title='taken'">&\u2028"'`)

  def shop = Profiles.profile(Profiles.shop)

  def later
    Profiles.profile(Profiles.body([[%i[string plus put main], 90, 0], [%i[string plus block put main], 10, 1],
                                    [%i[malloc deflate zlib put main], 29, 0], [%i[tree parse main], 13, 1],
                                    [%i[string tap set main], 2, 0], [[], 1, 1]]))
  end

  DRAWN = "document.readyState === 'complete' && " \
          "(!document.querySelector('#chart') || document.querySelector('#chart g.frame') !== null)"

  def opened(profile, **device)
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    Dir.mktmpdir do |directory|
      path = File.join(directory, "profile.html")
      File.write(path, profile.to_html)
      Browser.page(**device) do |page|
        page.go_to("file://#{path}")
        page.until_found("drawn page") { page.evaluate(DRAWN) }
        yield page

        assert_empty page.complaints
        assert_equal ["file://#{path}"], page.urls.grep_v(/\Adata:/)
      end
    end
  end

  # Each frame's width as a share of the graph's.
  def frames(page)
    page.evaluate(<<~JS).to_h
      (() => {
        const whole = document.querySelector("#chart svg").getBoundingClientRect().width;
        return [...document.querySelectorAll("#chart g.frame")]
          .map((one) => [one.querySelector("title").textContent, Number(one.getAttribute("width")) / whole]);
      })()
    JS
  end

  def widths(page) = frames(page).to_h { |title, share| [title[/\A[^,:]+(?:::[^,:]+)*/], share.round(3)] }

  def fill(page, name)
    page.evaluate("[...document.querySelectorAll('#chart g.frame')].find((one) => " \
                  "one.getAttribute('name') === #{name.to_json}).querySelector('rect').getAttribute('fill')")
  end

  def type(page, text)
    page.evaluate("(() => { const field = document.getElementById('search'); field.value = #{text.to_json}; " \
                  "field.dispatchEvent(new Event('input')); })()")
  end

  def zoom_to(page, name)
    page.evaluate("[...document.querySelectorAll('#chart g.frame')].find((one) => " \
                  "one.getAttribute('name') === #{name.to_json}).dispatchEvent(new MouseEvent('click'))")
  end

  def press(page, selector) = page.evaluate("document.querySelector(#{selector.to_json}).click()")

  def test_widths_are_live_bytes
    opened(shop) do |page|
      shares = frames(page)

      assert_in_delta 1, shares.fetch("all: 129.0 MiB ± 8.0 MiB, 100.0 %, 258 samples")
      assert_in_delta 119 / 129.0, shares.fetch("Cache#put, /srv/app/models/cache.rb:9: 119.0 MiB ± 7.7 MiB, 92.2 %, " \
                                                "238 samples"), 0.001
      assert_equal 18, shares.size
    end
  end

  # The samples of objects that are allocated together are not independent, so the errors of stacks cannot be summed.
  def test_a_frame_of_objects_has_no_error
    opened(Profiles.objects(100, 40, 1, 20)) do |page|
      titles = frames(page).keys

      assert_includes titles, "all: 6.1 MiB, 100.0 %, 160 samples"
      assert(titles.none? { |title| title.include?("±") })
      assert_match(/±.*^3\.8\t4\.1\t100,000\t100\t/m, page.text("table"))
    end
  end

  # Frames that the application calls are not folded: one of them may be what allocates.
  def test_frames_on_the_way_to_the_application_are_one
    way = %i[head callback head each thread]
    stacks = [[[:string, :plus, :put, *way], 60], [[:string, :callback, :put, *way], 40]]
    served = Profiles.profile(Profiles.body(stacks))
    opened(served) do |page|
      assert_equal 1, widths(page).fetch("Rack, Puma, Rails, Sidekiq".split(",").first)
      refute(frames(page).keys.any? { |title| title.start_with?("Rack::Head#call", "Array#each", "block in Puma") })
      assert_in_delta 0.4, widths(page).fetch("AbstractController::Callbacks#process_action"), 0.01
      press(page, "#fold")

      assert_equal 1, widths(page).fetch("block in Puma::ThreadPool#spawn_thread")
    end
    opened(shop) { |page| assert_nil page.evaluate("document.getElementById('fold')") }
  end

  def test_of_nothing_there_is_no_graph
    opened(Profiles.profile(Profiles.whole([], []))) do |page|
      assert_equal "No sampled allocation is still live.", page.text(".lede")
      assert page.evaluate("document.querySelector('#chart, #controls, table') === null")
      assert_empty page.evaluate(Browser::STRUCTURE)
    end
  end

  def test_details_of_what_is_pointed_at
    opened(shop) do |page|
      page.evaluate("[...document.querySelectorAll('#chart g.frame')].pop().dispatchEvent(new MouseEvent('mouseover'))")

      assert_match(/\A\S.*: \d.* MiB ± .*, [\d,]+ samples\z/, page.text("#details"))
    end
  end

  def test_search_names_how_much_matches
    opened(shop) do |page|
      type(page, "DEFLATE")

      assert_equal "3 frames, 34.0 MiB", page.text("#found")
      assert_equal "#c3a1ff", fill(page, "rb_deflate_initialize")
      assert_equal "#f6b3bd", fill(page, "Cache#put")
      type(page, "(")

      assert_equal "0 frames", page.text("#found")
      type(page, "")

      assert_empty page.text("#found")
      assert_equal "#b4cdf3", fill(page, "rb_deflate_initialize")
    end
  end

  def test_zoom_and_back
    opened(shop) do |page|
      zoom_to(page, "Set#add")
      page.until_found("a zoomed frame") { widths(page)["Set#add"] == 1 }

      refute_includes widths(page), "rb_deflate_initialize"
      press(page, "#reset")
      page.until_found("the whole") { widths(page)["Set#add"] < 0.02 }

      assert_includes widths(page), "rb_deflate_initialize"
    end
  end

  def test_inverted_the_allocating_function_is_first
    opened(shop) do |page|
      press(page, "#invert")
      shares = widths(page)

      assert_in_delta 92 / 129.0, shares["rb_str_plus"], 0.001
      assert_in_delta 5 / 129.0, shares["[no GVL]"], 0.001
      type(page, "malloc")

      assert_equal "1 frame, 29.0 MiB", page.text("#found")
    end
  end

  def test_a_difference_is_red_and_blue
    opened(later.growth_since(shop)) do |page|
      shares = widths(page)

      assert_in_delta 30 / 66.0, shares["Nokogiri::XML.parse"] + shares["block in Cache#put"], 0.001
      assert_in_delta 1 / 66.0, shares["[no frames]"], 0.001
      assert_equal "rgb(244,112,91)", fill(page, "Nokogiri::XML.parse")
      assert_equal "rgb(111,168,240)", fill(page, "block in Cache#put")
      assert_includes frames(page).keys, "all: +16.0 MiB ± 10.3 MiB, 32 samples"
    end
  end

  def test_names_from_the_program_are_text
    frames = [Profiles.ruby(HOSTILE, "/srv/#{HOSTILE}.rb", 1), Profiles.native(HOSTILE, "/lib/#{HOSTILE}")]
    profile = Profiles.profile(Profiles.whole(frames, [Profiles.stack([1, 0], MEBIBYTE, 0, tag: HOSTILE)]))
    opened(profile) do |page|
      assert_includes page.evaluate("document.title"), "Malloc by Ruby line"
      assert_equal "1", page.evaluate("document.querySelectorAll('main > #chart').length").to_s
      assert_empty page.evaluate("[...document.querySelectorAll('main img')]")
      named = HOSTILE.tr("\u2028", "?") # no line may seem to end

      assert_includes frames(page).keys, "#{named}, /srv/#{named}.rb:1: 1.0 MiB ± 0.7 MiB, 100.0 %, 2 samples"
      assert_includes page.text("tbody"), HOSTILE.delete("\u2028")[0, 20]
    end
  end

  DATA = %r{(?<=id="profile">).*?(?=</script>)}m

  # The data is beside that: its names, and each file once.
  def test_a_page_takes_75_kilobytes_without_its_data
    page = shop.to_html

    assert_operator page.sub(DATA, "").bytesize, :<=, 75_000
    assert_includes page, "Permission to use, copy, modify, and/or distribute this software"
    assert_includes page, "d3-flame-graph:\n\nApache License 2.0"
  end

  # As of a real program: most frames are of a few files, whose paths are long.
  def test_a_frame_does_not_repeat_its_file
    frames = Array.new(1_000) do |number|
      Profiles.native("function#{number}", "/srv/#{'directory/' * 10}lib#{number % 3}.so")
    end
    profile = Profiles.profile(Profiles.whole(frames, [Profiles.stack([*0...1_000], MEBIBYTE, 0)]))
    data = profile.to_html[DATA]

    assert_equal 3, data.scan("/srv/").size
    assert_operator data.bytesize, :<=, 35_000
  end

  # The same colours as the pages of Memscope::Web, in one file that needs no other.
  def test_it_brings_its_colours
    style = shop.to_html[%r{<style>(.*?)</style>}m, 1]

    assert_includes style.scan(/var\((--[\w-]+)/).flatten, "--paper"
    assert_empty style.scan(/var\((--[\w-]+)/).flatten.uniq - style.scan(/(--[\w-]+):/).flatten
    assert_includes style, File.read(File.join(ChildProcess::ROOT, "lib/memscope/web/assets/base.css"))
  end

  def test_it_is_in_order_for_everyone
    opened(shop) do |page|
      %w[light dark].each do |scheme|
        page.look(width: 1280, height: 900, scheme: scheme)

        assert_empty page.evaluate(Browser::CONTRAST)
      end
      assert_empty page.evaluate(Browser::STRUCTURE)
    end
  end

  def test_it_fits_a_phone
    opened(shop, width: 390, height: 844) do |page|
      assert_operator page.evaluate("document.documentElement.scrollWidth"), :<=, 390
    end
  end

  def test_without_script_the_table_is_there
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    Dir.mktmpdir do |directory|
      File.write("#{directory}/profile.html", shop.to_html)
      Browser.page do |page|
        page.without_script
        page.go_to("file://#{directory}/profile.html")

        assert_includes page.text("tbody"), "/srv/app/models/cache.rb:9 in Cache#put"
        assert_includes page.text("noscript"), "the table does not"
      end
    end
  end

  def test_too_few_samples_of_objects_and_memscopes_own
    page = Profiles.objects(100, 9, 500).to_html

    assert_includes page, "<td></td><td></td><td></td><td>9</td><td></td>"
    assert_match(%r{<td>3\.8</td><td>\d+\.\d</td><td>100,000</td><td>100</td><td>91\.7 %</td>}, page)
    refute_match(%r{<th scope="row"[^>]*>[^<]*memscope/profile\.rb}, page)
  end

  def test_its_policy_allows_no_request
    policy = CGI.unescapeHTML(shop.to_html[/http-equiv="Content-Security-Policy" content="([^"]+)"/, 1])

    assert_match(/\Adefault-src 'none'; script-src( 'sha256-[^ ]+'){2}; style-src 'sha256-[^ ]+'; /, policy)
    refute_includes policy, "unsafe"
  end

  def test_what_was_too_small_or_nothing
    opened(Profiles.profile(Profiles.body([]))) { |page| assert_includes page.text(".lede"), "No sampled allocation" }
    opened(shop.growth_since(shop)) { |page| assert_includes page.text("main"), "has not changed" }
  end
end
