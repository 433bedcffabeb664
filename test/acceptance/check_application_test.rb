# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../support/small_rails"

# A check of a real application of Rails.
class CheckApplicationAcceptanceTest < MemscopeTest
  parallelize_me!

  RAILS = <<~'RUBY'
    class PagesController < ActionController::Base
      def show = render(plain: "hello")
      def broken = raise("no database")
    end
    App.routes.append { %w[show broken].each { |action| get "/#{action}", to: "pages##{action}" } }
    App.initialize! unless App.initialized?
    run App
  RUBY

  # The number that derailed's perf:mem_over_time prints rises even for this application.
  def test_an_empty_rails_application
    skip_under_sanitizer
    Dir.mktmpdir do |directory|
      File.write(rackup = File.join(directory, "config.ru"), SmallRails.source + RAILS)
      hash, message = ChildProcess.run(<<~RUBY, bundle: true, requires: %w[memscope json]).json
        check = Memscope::Check.application(#{rackup.inspect}, path: "/show", requests: 200)
        message = (Memscope::Check.application(#{rackup.inspect}, path: "/broken") rescue $!.message)
        puts JSON.generate([check.to_h, message])
      RUBY
      found = Memscope::Check.from_h(hash)

      assert_equal [:steady, "production", :process], [found.verdict, found.environment, found.ran_in]
      assert_operator found.points.first.objects, :<, found.points[1].objects
      grown = found.points.last(6).each_cons(2).map { |one, later| later.objects - one.objects }

      assert_in_delta 0, grown.sort[2], 4, grown # Rails may load something in one of them
      assert_equal "GET /broken: status 500 RuntimeError: no database", message
    end
  end
end
