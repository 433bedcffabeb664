# frozen_string_literal: true

# An application with memscope's pages beside its own: /hello; POST /garbage, which leaves so many MiB free in malloc;
# and /elsewhere, whose form goes to memscope on another origin.
require "memscope"

unless Memscope.respond_to?(:configuration)
  settings = Struct.new(:username, :password, :authorize, :actions, :logger)
  configuration = settings.new(*ENV.values_at("MEMSCOPE_USERNAME", "MEMSCOPE_PASSWORD"), nil, true, nil)
  Memscope.define_singleton_method(:configuration) { configuration }
end

map("/memscope") { run Memscope::Web }

map("/hello") { run ->(_env) { [200, { "content-type" => "text/plain" }, ["hello"]] } }

map("/garbage") do
  run(lambda do |env|
    mebibytes = Integer(env["QUERY_STRING"])
    strings = Array.new(mebibytes * 1024) { "x" * 1000 }
    strings.clear
    GC.start
    [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
  end)
end

map("/elsewhere") do
  run(lambda do |env|
    page = <<~HTML
      <!doctype html><html lang="en"><title>elsewhere</title>
      <form method="post" action="#{env['QUERY_STRING']}"><input name="token" value="#{'t' * 43}">
      <input name="lever" value="gc"><button>Win a prize</button></form>
    HTML
    [200, { "content-type" => "text/html" }, [page]]
  end)
end
