# frozen_string_literal: true

require "json"
require "net/http"
require "tmpdir"

# A real Puma in processes of its own, with plugin :memscope and workers that report each second, serving the
# application of workloads/workers.ru.
#
#   PumaServer.run("workers 2; preload_app!") { |server| server.workers }
class PumaServer
  # Seconds in which anything here happens, on a loaded machine.
  PATIENCE = 60

  def self.run(configuration, **options)
    Dir.mktmpdir do |directory|
      server = new(directory, configuration, **options)
      yield server
    rescue Minitest::Assertion, StandardError => e
      raise if e.is_a?(Minitest::Skip) || server.nil?

      raise e.class, "#{e.message}\n--- Puma's log\n#{server.log}", e.backtrace
    ensure
      server&.stop
    end
  end

  # @return [Integer] the master, or the only process
  attr_reader :pid

  # @param through [Array<String>] a command of memscope's that becomes Puma
  def initialize(directory, configuration, preload: nil, env: {}, through: [])
    raise Minitest::Skip, ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE

    @log = File.join(directory, "log")
    write(directory, configuration)
    @pid = start(directory, environment(directory, preload, env), through)
    @waiter = Process.detach(@pid)
    @port = until_found("a port") { log[%r{Listening on http://127\.0\.0\.1:(\d+)}, 1] }.to_i
    until_found("an answer") { get("/pid") }
  end

  def log = File.read(@log)

  # @return [String, nil] what one of the processes answers; nil where none does
  def get(path)
    Net::HTTP.start("127.0.0.1", @port, open_timeout: PATIENCE, read_timeout: PATIENCE) { |http| http.get(path).body }
  rescue SystemCallError, EOFError
    nil
  end

  # @return [Net::HTTPResponse] of a form that is posted to memscope's pages by a tool
  def post(path, fields)
    token = "t" * 43
    headers = { "Cookie" => "memscope_token=#{token}", "Origin" => "http://127.0.0.1:#{@port}",
                "Content-Type" => "application/x-www-form-urlencoded", "Accept" => "application/json" }
    Net::HTTP.start("127.0.0.1", @port, open_timeout: PATIENCE, read_timeout: PATIENCE) do |http|
      http.post(path, URI.encode_www_form(token: token, **fields), headers)
    end
  end

  # @return [Memscope::Workers] as the process says that answers
  def workers = until_found("workers") { answered_workers }

  # @return [Memscope::Workers] each with a reading of its own from now on
  def fresh_workers
    now = Time.now
    sleep 0.5
    workers_when("fresh readings") { |all| all.all? { |worker| worker.at && worker.at > now } }
  end

  # @return [Memscope::Workers] the first of them for which the block holds
  def workers_when(what)
    until_found(what) do
      workers = answered_workers
      workers if workers && yield(workers)
    end
  end

  def until_found(what)
    deadline = clock + PATIENCE
    until (found = yield)
      raise ChildProcess::Failure, "no #{what}: #{log}" if clock > deadline || !@waiter.alive?

      sleep 0.02
    end
    found
  end

  # Workers that a test has stopped go on first.
  def stop
    Process.kill(:CONT, -@pid)
    Process.kill(:TERM, @pid)
    return if @waiter.join(PATIENCE)

    Process.kill(:KILL, -@pid)
    @waiter.join
  rescue Errno::ESRCH
    nil
  end

  private

  # nil where none answers: the one that was to may have been killed just then.
  def answered_workers = get("/workers")&.then { |text| Memscope::Workers.from_h(JSON.parse(text)) }

  def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def write(directory, configuration)
    Dir.mkdir(File.join(directory, "config"))
    File.write(File.join(directory, "config/puma.rb"), <<~RUBY)
      #{configuration}
      plugin :memscope
      rackup "#{__dir__}/workloads/workers.ru"
      bind "tcp://127.0.0.1:0"
      threads 1, 1
      raise_exception_on_sigterm false
      worker_check_interval 1
    RUBY
  end

  def environment(directory, preload, env)
    ChildProcess.environment(preload, { "BUNDLE_GEMFILE" => File.join(ChildProcess::ROOT, "Gemfile"),
                                        "RACK_ENV" => "test", "MEMSCOPE_WORKER_INTERVAL" => "1",
                                        "MEMSCOPE_SOCKET_DIRECTORY" => directory, **env })
  end

  # Puma itself finds config/puma.rb, so that the first option of it is the first that Puma has.
  def start(directory, environment, through)
    load_path = ChildProcess::LOAD_PATH.map { |directory| "-I#{directory}" }
    executable = File.join(ChildProcess::ROOT, "exe", "memscope")
    through = [RbConfig.ruby, "-W0", *load_path, executable, *through, "--"] if through.any?
    command = [*through, RbConfig.ruby, "-W0", *load_path, "-rbundler/setup",
               "-e", 'load Gem.bin_path("puma", "puma")', "--"]
    Process.spawn(environment, *command, chdir: directory, in: File::NULL, out: @log, err: @log, pgroup: true)
  end
end
