# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "puma_process"
require_relative "rails_skeleton"

# A real application in a directory of its own, served by a real Puma, and queried over HTTP.
#
#   ServedApplication.rails(preload: "libjemalloc.so.2") { |application| application.get("/memscope") }
#
# The applications answer /pid, and POST /garbage?mebibytes=64, which leaves that much free memory behind. Puma finds a
# free port, has two workers and loads the application before it forks them, unless told otherwise.
class ServedApplication < PumaProcess
  ROOT = ChildProcess::ROOT

  GARBAGE = <<~RUBY
    random = Random.new(1)
    strings = Array.new(Integer(mebibytes) * 1_600) { "x" * random.rand(24..1_600) }
    strings.select!.with_index { |_, index| (index % 500).zero? }
    strings.clear
    GC.start
  RUBY

  CONTROLLER = <<~RUBY.freeze
    class PagesController < ActionController::Base
      skip_forgery_protection

      def pid = render(plain: Process.pid.to_s)

      def garbage
        mebibytes = params.fetch(:mebibytes)
        #{GARBAGE.gsub("\n", "\n    ")}
        render(plain: "")
      end
    end
  RUBY

  ROUTES = <<~RUBY
    Rails.application.routes.draw do
      mount Memscope::Web => "/memscope"
      get "/pid", to: "pages#pid"
      post "/garbage", to: "pages#garbage"
    end
  RUBY

  SINATRA = <<~RUBY.freeze
    require "sinatra/base"
    require "memscope/web"
    class Pages < Sinatra::Base
      get("/pid") { Process.pid.to_s }
      post "/garbage" do
        mebibytes = params.fetch("mebibytes")
        #{GARBAGE.gsub("\n", "\n    ")}
        ""
      end
    end
    map("/memscope") { run Memscope::Web }
    run Pages
  RUBY

  Response = Struct.new(:status, :headers, :body, keyword_init: true) do
    def json = JSON.parse(body)
  end

  class << self
    # A generated Rails application. `initializer` is the text of its config/initializers/memscope.rb.
    def rails(initializer: "", **options, &use)
      in_directory do |directory|
        root = RailsSkeleton.copy_to(directory)
        files = { "Gemfile" => gemfile("rails"), "config/initializers/memscope.rb" => initializer,
                  "config/routes.rb" => ROUTES, "app/controllers/pages_controller.rb" => CONTROLLER }
        files.each { |path, text| File.write(File.join(root, path), text) }
        production = File.join(root, "config/environments/production.rb")
        File.write(production, File.read(production).sub(/^ *config\.force_ssl = true$/, ""))
        run(root, **options, &use)
      end
    end

    # A Sinatra application. `configuration` is Ruby that runs before it is loaded.
    def sinatra(configuration: "", **options, &use)
      in_directory do |directory|
        File.write(File.join(directory, "Gemfile"), gemfile("sinatra"))
        File.write(File.join(directory, "config.ru"), "require \"memscope\"\n#{configuration}\n#{SINATRA}")
        run(directory, **options, &use)
      end
    end

    private

    def in_directory
      raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE

      Dir.mktmpdir { |directory| yield(File.realpath(directory)) }
    end

    def gemfile(framework)
      <<~RUBY
        source Gem.sources.first.uri.to_s
        gem "#{framework}"
        gem "puma"
        gem "memscope", path: #{ROOT.dump}
      RUBY
    end
  end

  # @param root [String] with a Gemfile and a config.ru
  # @param preload [String, nil] an allocator
  # @param env [Hash{String => String, nil}]
  # @param puma [String] more lines of config/puma.rb
  # @param workers [Integer] 0 for single mode
  def initialize(root, preload: nil, env: {}, puma: "preload_app!", workers: 2)
    env = ChildProcess.environment(
      preload, "RACK_ENV" => "production", "RAILS_ENV" => "production", "SECRET_KEY_BASE" => "x" * 64,
               "RAILS_LOG_TO_STDOUT" => "1", "BUNDLE_GEMFILE" => File.join(root, "Gemfile"),
               "BUNDLE_PATH" => File.join(ROOT, "vendor", "bundle"), **env
    )
    configure(root, workers, puma)
    super(%w[bundle exec puma -C config/puma.rb], env, root)
    until_found("answer") { answers? }
  end

  def get(path, headers: {}) = answer(Net::HTTP::Get.new(path, headers))

  def post(path, form: {}, headers: {})
    answer(Net::HTTP::Post.new(path, headers).tap { |request| request.set_form_data(form) })
  end

  # Sends requests until that many different workers have answered.
  #
  # @return [Array<Integer>] their pids
  def worker_pids(count = 2)
    pids = []
    until_found("#{count} workers") do
      pids |= Array.new(8) { Thread.new { Integer(get("/pid").body) } }.map(&:value)
      pids.size >= count
    end
    pids
  end

  private

  def configure(root, workers, puma)
    FileUtils.mkdir_p(File.join(root, "config"))
    File.write(File.join(root, "config", "puma.rb"), <<~RUBY)
      workers #{workers}
      threads 1, 3
      #{puma}
      bind "tcp://127.0.0.1:0"
      plugin :memscope
      raise_exception_on_sigterm false
    RUBY
  end

  def answers?
    get("/pid").status == 200
  rescue SystemCallError, IOError
    false
  end

  def answer(request)
    answer = request(request)
    Response.new(status: answer.code.to_i, headers: answer.each_header.to_h, body: answer.body)
  end
end
