# frozen_string_literal: true

require_relative "../support/web_case"

# Memscope::Web as a server mounts it.
class WebTest < WebCase
  # Prints the status of a request that the pages answer if they are open, in a child after each of SETTINGS.
  ASKS = <<~RUBY
    require "rack"
    require "json"
    require "stringio"
    env = { "REQUEST_METHOD" => "GET", "PATH_INFO" => "/assets/icon.svg", "REMOTE_ADDR" => "127.0.0.1",
            "HTTP_HOST" => "localhost", "SERVER_PROTOCOL" => "HTTP/1.1", "rack.errors" => $stderr }
    statuses = SETTINGS.map do |setting|
      reading, writing = IO.pipe
      pid = fork do
        eval(setting)
        require "memscope/web"
        writing.write(Memscope::Web.call(env).first)
        exit!(0)
      end
      writing.close
      reading.read.tap { Process.wait(pid) }
    end
    puts JSON.generate(statuses)
  RUBY

  CONFIGURED = "require 'memscope'; Memscope.configure { |c| c.authorize = ->(_request) { true } }"

  def test_a_configuration_opens_it_and_no_environment
    environments = %w[development test].flat_map do |name|
      variables = "ENV.update(%w[RACK_ENV RAILS_ENV APP_ENV].to_h { |variable| [variable, #{name.dump}] })"
      [variables, "#{variables}; module Rails; def self.env = #{name.dump}; end"]
    end
    ran = ChildProcess.run("SETTINGS = #{[CONFIGURED, *environments].inspect}\n#{ASKS}", bundle: true)

    assert_equal ["200", *["403"] * 4], ran.json
  end
end
