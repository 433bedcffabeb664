# frozen_string_literal: true

require_relative "../support/web_case"

# Memscope::Web as a server mounts it.
class WebTest < WebCase
  # A request that the pages answer if they are open.
  ASKS = <<~RUBY
    require "memscope/web"
    require "stringio"
    env = { "REQUEST_METHOD" => "GET", "PATH_INFO" => "/assets/icon.svg", "REMOTE_ADDR" => "127.0.0.1",
            "HTTP_HOST" => "localhost", "SERVER_PROTOCOL" => "HTTP/1.1", "rack.errors" => $stderr }
    puts Memscope::Web.call(env).first
  RUBY

  def test_no_environment_opens_it
    %w[development test].each do |name|
      env = { "RACK_ENV" => name, "RAILS_ENV" => name, "APP_ENV" => name }
      rails = "module Rails; def self.env = #{name.dump}; end;"

      assert_equal "403\n", ChildProcess.run(ASKS, env: env, bundler: true).out
      assert_equal "403\n", ChildProcess.run("#{rails} #{ASKS}", env: env, bundler: true).out
    end
  end

  def test_a_configuration_opens_it
    configured = "require 'memscope'; Memscope.configure { |c| c.authorize = ->(_request) { true } };"

    assert_equal "200\n", ChildProcess.run("#{configured} #{ASKS}", bundler: true).out
  end
end
