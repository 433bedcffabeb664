# frozen_string_literal: true

require "json"
require "tmpdir"
require_relative "puma_process"

# A Puma with plugin :memscope and workers that report every second, serving the application in workloads/workers.ru.
#
#   PumaServer.run("workers 2; preload_app!") { |server| server.workers }
class PumaServer < PumaProcess
  def self.run(configuration, **options)
    Dir.mktmpdir { |directory| super(directory, configuration, **options) }
  end

  # @return [String] where it runs, and where its processes listen
  attr_reader :directory

  # @param through [Array<String>] a command of memscope's that becomes Puma
  # @param threads [Integer] of each worker
  def initialize(directory, configuration, preload: nil, env: {}, through: [], threads: 1)
    @directory = directory
    write(directory, configuration, threads)
    super(command(through), environment(directory, preload, env), directory)
    until_found("answer") { get("/pid") }
  end

  # @return [String, nil] the answer of one of the processes; nil if none answers
  def get(path)
    request(Net::HTTP::Get.new(path)).body
  rescue SystemCallError, EOFError
    nil
  end

  # @return [Net::HTTPResponse]
  def request(request) = super(request.tap { request.basic_auth("ops", "sesame") })

  # @return [Net::HTTPResponse] the answer to a form that a tool posts to memscope's pages
  def post(path, fields)
    headers = { "Origin" => "http://127.0.0.1:#{port}", "Accept" => "application/json" }
    request(Net::HTTP::Post.new(path, headers).tap { |post| post.set_form_data(fields) })
  end

  # @return [Memscope::Workers] as the process that answers reports them
  def workers = until_found("workers") { answered_workers }

  # @return [Memscope::Workers] each worker with a reading taken after this call; the master reads itself once a minute
  def fresh_workers
    now = Time.now
    workers_when("fresh readings") do |all|
      all.all? { |worker| worker.at && (worker.role == :master || worker.at > now) }
    end
  end

  # @return [Memscope::Workers] the first answer for which the block is true
  def workers_when(what)
    until_found(what) do
      workers = answered_workers
      workers if workers && yield(workers)
    end
  end

  private

  # nil if no process answers: the one that should may have been killed just then.
  def answered_workers = get("/workers")&.then { |text| Memscope::Workers.from_h(JSON.parse(text)) }

  def write(directory, configuration, threads)
    Dir.mkdir(File.join(directory, "config"))
    File.write(File.join(directory, "config/puma.rb"), <<~RUBY)
      #{configuration}
      plugin :memscope
      rackup "#{__dir__}/workloads/workers.ru"
      bind "tcp://127.0.0.1:0"
      threads #{threads}, #{threads}
      raise_exception_on_sigterm false
      worker_check_interval 1
    RUBY
  end

  def environment(directory, preload, env)
    self.class.environment(preload, { "RACK_ENV" => "test", "MEMSCOPE_WORKER_INTERVAL" => "1",
                                      "MEMSCOPE_USERNAME" => "ops", "MEMSCOPE_PASSWORD" => "sesame",
                                      "MEMSCOPE_SOCKET_DIRECTORY" => directory, **env })
  end

  # Puma itself finds config/puma.rb, so that the first option in that file is the first one that Puma gets.
  def command(through)
    return self.class.command("puma") if through.empty?

    load_path = ChildProcess::LOAD_PATH.map { |directory| "-I#{directory}" }
    executable = File.join(ChildProcess::ROOT, "exe", "memscope")
    [RbConfig.ruby, "-W0", *load_path, executable, *through, "--", *self.class.command("puma")]
  end
end
