# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../../action/publication"
require "tmpdir"

# Of a first comment, see acceptance/action_test.rb.
class ActionPublicationTest < MemscopeTest
  TEXT = "<!-- one -->\nnothing grew\n"

  # Publishes with a gh that runs the script.
  def publish(script, pull_request: "7", token: "secret")
    Dir.mktmpdir do |directory|
      paths = %w[gh summary calls].to_h { |name| [name, File.join(directory, name)] }
      File.write(paths["gh"], "#!/bin/sh\n#{script}\n", perm: 0o755)
      environment = { "PATH" => "#{directory}:#{ENV.fetch('PATH')}", "GITHUB_STEP_SUMMARY" => paths["summary"],
                      "GITHUB_REPOSITORY" => "one/shop", "CALLS" => paths["calls"] }
      usual = ENV.slice(*environment.keys)
      ENV.update(environment)
      Memscope::Publication.new(pull_request, token).write(TEXT)
      paths.values_at("calls", "summary").map { |path| File.read(path) if File.file?(path) }
    ensure
      environment&.each_key { |name| ENV[name] = usual[name] }
    end
  end

  def test_a_comment_is_replaced
    calls, summary = publish('echo "$@" >>"$CALLS"; case "$*" in *--jq*) echo 31; echo 32;; *) cat >>"$CALLS";; esac')

    assert_equal <<~TEXT, calls
      api --paginate repos/one/shop/issues/7/comments --jq .[] | select(.user.type == "Bot" and (.body | startswith("<!-- one -->"))) | .id
      api --method PATCH repos/one/shop/issues/comments/31 --field body=@-
      #{TEXT.chomp}
    TEXT
    assert_nil summary
  end

  def test_the_summary
    assert_equal [nil, TEXT], publish("exit 1") # as with the token of a fork
    assert_equal [nil, TEXT], publish('echo >>"$CALLS"', token: "")
    assert_equal [nil, TEXT], publish('echo >>"$CALLS"', pull_request: nil)
  end
end
