# frozen_string_literal: true

require_relative "../support/web_case"

# Posted forms that change processes.
class WebActionsTest < WebCase
  def test_a_purge_says_what_it_returned
    app = application
    response = post({ "lever" => "gc" }, { **OWN, **JSON_PLEASE }, on: app)
    result = Memscope::Purge::Result.from_h(JSON.parse(response.body))

    assert_equal 200, response.status
    assert_equal [:gc], result.levers.map(&:name)
    assert_equal result.returned_bytes, result.rows.values.sum
    assert_match(/MiB returned|Nothing changed|grew by/,
                 post({ "lever" => "gc" }, { **OWN, **BROWSER }, on: app).body)
    assert_match(/RSS .* before/, post({ "lever" => "gc" }, { **OWN, "HTTP_ACCEPT" => "text/plain" }, on: app).body)
  end

  def test_a_purge_can_be_predicted_only
    response = post({ "lever" => "all", "dry_run" => "1" }, { **OWN, **JSON_PLEASE })

    assert JSON.parse(response.body)["dry_run"]
    refused = post({ "lever" => "all", "dry_run" => "true" }, { **OWN, **JSON_PLEASE })

    assert_equal [400, 'dry_run: given "true", allowed: 0, 1.'], [refused.status, JSON.parse(refused.body)["error"]]
    assert_nil JSON.parse(response.body)["after"]
  end

  # Processes that do not know each other may serve the page and then its form.
  def test_no_other_process_than_that_of_the_page_is_changed
    app = application
    gc = { "do" => "gc" }
    { "/purge" => { "lever" => "gc" }, "/doctor" => gc, "/profile" => gc }.each do |path, form|
      collected = GC.count
      refused = GC.disable.then { post({ **form, "pid" => "1" }, path: path, on: app) }

      assert_equal [409, collected], [refused.status, GC.count], path
      assert_includes refused.body, "Nothing was done: the page was of process 1, but the request reached this " \
                                    "process (pid #{Process.pid})."
      GC.enable

      assert_equal 200, post({ **form, "pid" => Process.pid.to_s }, path: path, on: app).status
    end
  ensure
    GC.enable
  end

  def test_actions_can_be_switched_off
    app = application(actions: false)

    assert_equal 403, post({ "lever" => "gc" }, on: app).status
    refute_match(/<button/, get("/?findings=1", on: app).body)
  end

  def test_two_purges_at_once_are_one
    app = application
    Memscope::Purge.with_exclusive_purge do
      program, person = [JSON_PLEASE, BROWSER].map do |env|
        Thread.new { post({ "lever" => "gc" }, { **OWN, **env }, on: app) }.value
      end

      assert_equal [409, "1"], [program.status, program["retry-after"]]
      assert_includes person.body, "another thread of this process is purging or tuning"
    end
  end
end
