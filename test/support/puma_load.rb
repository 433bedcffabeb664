# frozen_string_literal: true

require "net/http"

# Requests from several threads at once, for a PumaProcess, which defines `between`: the seconds from one request of a
# thread to its next.
module PumaLoad
  # Sends requests until the block returns true: some threads with a connection for each, others with one that is kept
  # alive. A client repeats a request that Puma has not begun to answer when it closes such a connection, as Net::HTTP
  # does.
  #
  # @return [Array(Integer, Array<String>)] number of answered requests, and the errors of the others
  def under_load(threads: 4)
    answered = Array.new(threads, 0)
    failed = Queue.new
    stopped = false
    clients = Array.new(threads) do |index|
      Thread.new do
        until stopped
          answered[index] += client(failed, kept: index.odd?) { stopped }
          sleep between
        end
      end
    end
    sleep 0.1 until yield
    stopped = true
    clients.each(&:join)
    [answered.sum, Array.new(failed.size) { failed.pop }]
  end

  # @return [Array<Integer>] pids of its children
  def workers = Dir["/proc/#{pid}/task/*/children"].flat_map { |path| File.read(path).split.map(&:to_i) }.sort

  private

  def client(failed, kept:)
    done = 0
    patience = PumaProcess::PATIENCE
    Net::HTTP.start("127.0.0.1", port, open_timeout: patience, read_timeout: patience) do |http|
      loop do
        request = Net::HTTP::Get.new("/", kept ? {} : { "Connection" => "close" })
        answer = http.request(request)
        answer.is_a?(Net::HTTPOK) ? done += 1 : failed << answer.code
        break if !kept || yield

        sleep between
      end
    end
    done
  rescue SystemCallError, IOError, Timeout::Error => e
    failed << "#{e.class}: #{e.message}"
    done
  end
end
