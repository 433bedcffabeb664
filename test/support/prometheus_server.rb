# frozen_string_literal: true

require "json"
require "net/http"
require "socket"
require "tmpdir"

# A real Prometheus that scrapes every second while a block runs.
class PrometheusServer
  PATHS = ENV.fetch("PATH", "").split(":")

  # @return [Boolean] whether Debian's package is installed
  def self.installed? = PATHS.any? { |path| File.executable?(File.join(path, "prometheus")) }

  # @param jobs [Hash{String => Integer, Hash}] by job, its port of 127.0.0.1; or its settings, with :port among them
  def self.run(jobs)
    Dir.mktmpdir do |directory|
      server = new(directory, jobs)
      begin
        yield server
      ensure
        server.stop
      end
    end
  end

  def initialize(directory, jobs)
    @port = free_port
    @log = File.join(directory, "log")
    scraped = jobs.map { |job, target| settings(job, **(target.is_a?(Hash) ? target : { port: target })) }
    configuration = File.join(directory, "prometheus.yml")
    File.write(configuration, JSON.generate(global: { scrape_interval: "1s", scrape_timeout: "1s" },
                                            scrape_configs: scraped))
    @pid = spawn("prometheus", "--config.file=#{configuration}", "--storage.tsdb.path=#{directory}/data",
                 "--web.listen-address=127.0.0.1:#{@port}", "--log.level=warn", out: @log, err: @log)
  end

  # @return [Array<Hash>] results of an instant query, each with "metric" and "value"
  def query(expression) = result("query", query: expression)

  # @return [Float, nil] the only result's value
  def value(expression)
    results = query(expression)
    raise "#{expression} has #{results.size} results" if results.size > 1

    results.first && Float(results.first["value"].last)
  end

  # @return [Array<Hash>] the scraped targets, with "health" and "lastError"
  def targets = get("targets").dig("data", "activeTargets")

  # Waits until the block is true. The first scrape comes about six seconds after the start.
  def wait(seconds)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    loop do
      begin
        return true if yield
      rescue SystemCallError
        raise "prometheus ended: #{File.read(@log)}" if Process.wait(@pid, Process::WNOHANG)
      end
      return false if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

      sleep 0.2
    end
  end

  def stop
    Process.kill(:TERM, @pid)
    Process.wait(@pid)
  rescue Errno::ESRCH, Errno::ECHILD
    nil
  end

  private

  # A port below the ephemeral range: the kernel does not give it to another socket before Prometheus listens there.
  def free_port
    any = File.read("/proc/sys/net/ipv4/ip_local_port_range").to_i
    port = rand(10_000...any.clamp(20_000, 32_768))
    TCPServer.open("127.0.0.1", port) { port }
  rescue Errno::EADDRINUSE
    retry
  end

  def settings(job, port:, **others)
    { job_name: job, static_configs: [{ targets: ["127.0.0.1:#{port}"] }], **others }
  end

  def result(call, **parameters)
    answer = get(call, **parameters)
    raise "#{parameters[:query]}: #{answer['error']}" unless answer["status"] == "success"

    answer["data"]["result"]
  end

  def get(call, **parameters)
    uri = URI("http://127.0.0.1:#{@port}/api/v1/#{call}")
    uri.query = URI.encode_www_form(parameters)
    answer = Net::HTTP.get_response(uri)
    raise Errno::ECONNREFUSED, "prometheus is starting" if answer.is_a?(Net::HTTPServiceUnavailable)

    JSON.parse(answer.body)
  end
end
