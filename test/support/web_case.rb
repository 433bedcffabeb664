# frozen_string_literal: true

require_relative "../test_helper"

# For tests of Memscope::Web in this process: an application that is open, and requests as a browser on the same machine
# makes them.
class WebCase < MemscopeTest
  Settings = Struct.new(:username, :password, :authorize, :actions, :logger, keyword_init: true)
  # A logger that keeps its lines.
  Log = Struct.new(:lines) do
    def warn(line) = lines << line
    alias_method :info, :warn
  end

  LOCAL = { "REMOTE_ADDR" => "127.0.0.1", "HTTP_HOST" => "localhost:9292", "SCRIPT_NAME" => "/memscope" }.freeze
  # Rack's environment of a form posted from one of memscope's own pages.
  OWN = { **LOCAL, "HTTP_SEC_FETCH_SITE" => "same-origin", "HTTP_ORIGIN" => "http://localhost:9292" }.freeze
  # The Accept header of a browser.
  BROWSER = { "HTTP_ACCEPT" => "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8" }.freeze
  JSON_PLEASE = { "HTTP_ACCEPT" => "application/json" }.freeze

  def setup
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    require "memscope/web"
    require "rack/lint"
    require "rack/mock"
    super
  end

  def log = @log ||= Log.new([])

  # Open unless the settings say who gets in.
  def application(open: true, processes: Memscope::Web::Processes.new, clock: unhurried, **settings)
    settings[:authorize] = ->(_request) { true } if open && !settings.keys.intersect?(%i[username password authorize])
    configuration = Settings.new(actions: true, logger: log, **settings)
    Memscope::Web::Application.new(configuration: -> { configuration }, processes: processes, clock: clock)
  end

  # A clock that advances a minute at each look, so that every refusal is logged.
  def unhurried = (0..).step(60).each.method(:next)

  # Uses Rack::Lint to check the response. It also checks the request, so malformed requests need `lint: false`.
  def request(verb, path, env = {}, on: application, lint: true)
    env = Rack::MockRequest.env_for(path, method: verb, **env.slice(:input, :params))
                           .merge(LOCAL, env.except(:input, :params))
    env["REQUEST_METHOD"] = verb
    env.delete_if { |_name, value| value.nil? }
    Rack::MockResponse.new(*(lint ? Rack::Lint.new(on) : on).call(env))
  end

  def get(path, env = {}, **options) = request("GET", path, env, **options)

  def post(fields, env = OWN, path: "/purge", **options)
    request("POST", path, { params: fields, **env }, **options)
  end

  # Processes of which some kinds of readings are cheap, and how often each was taken.
  def counting(clock: nil, **kinds)
    counts = Hash.new(0)
    mutex = Mutex.new
    known = kinds.to_h do |kind, read|
      [kind, ->(*arguments) { mutex.synchronize { counts[kind] += 1 }.then { read.call(*arguments) } }]
    end
    [Memscope::Web::Processes.new(known, **{ clock: clock }.compact), counts]
  end

  def basic(username, password) = { "HTTP_AUTHORIZATION" => "Basic #{["#{username}:#{password}"].pack('m0')}" }
end
