# frozen_string_literal: true

require "json"
require_relative "../census"
require_relative "../remote/sockets"

module Memscope
  class Workers < Reading
    # Keeps, in files that only this user can read, why a worker is restarted: the decision, the worker's last report
    # with its verdict and its memory by owner, how each row grew since its first report, the largest classes, and as
    # many as fit of the readings that the decision was made by. In the directory of the setting, it also keeps all
    # readings, which `memscope policy` replays.
    #
    # @api private
    module Evidence
      # The largest file, in bytes.
      LIMIT = 50_000
      # The largest file of readings, in bytes; the one before it stays too.
      READINGS = 8 << 20
      # How many files about restarts stay; older ones are deleted.
      FILES = 20
      # How many classes, those with the most memory.
      CLASSES = 30
      # The longest wait for a worker's answer, in seconds.
      PATIENCE = 30
      # The file of a restart that is not measured yet.
      OUTCOME = "outcome.json"
      private_constant :OUTCOME, :LIMIT, :READINGS, :FILES, :CLASSES

      class << self
        # @param group [Policy::Group]
        # @return [void]
        def record(group)
          directory = Workers.setting(:policy_evidence_directory) or return

          path = File.join(directory, "groups.jsonl")
          File.rename(path, File.join(directory, "groups.old.jsonl")) if File.size?(path).to_i > READINGS
          File.open(path, File::WRONLY | File::CREAT | File::APPEND | File::NOFOLLOW, 0o600) do |file|
            file.write("#{group.to_json}\n")
          end
        end

        # Leaves a restart to the successor of this process.
        #
        # @param outcome [Hash] as of Policy::Outcome, and the working set `before`
        # @return [void]
        def leave(outcome)
          path = File.join(directory, OUTCOME)
          File.open(path, File::WRONLY | File::CREAT | File::TRUNC | File::NOFOLLOW, 0o600) do |file|
            file.write(JSON.generate(outcome))
          end
        rescue SystemCallError, Sockets::Refused
          nil # then its successor does not know of it
        end

        # @return [Array<Hash>] what `leave` has left, since the machine booted; none if nothing can be read
        def left
          path = File.join(directory, OUTCOME)
          outcome = JSON.parse(File.read(path), symbolize_names: true)
          File.unlink(path)
          before = Integer(outcome.delete(:before))
          known = Policy::Outcome.from_h(outcome)
          known.seconds < Clock.now ? [{ **known.to_h, before: before }] : []
        rescue SystemCallError, Sockets::Refused, JSON::ParserError, ArgumentError, TypeError, NoMethodError
          []
        end

        # Raises nothing: a full disk must not keep a worker that is about to be killed.
        #
        # @param host [PumaHost, SingleHost]
        # @param decision [Policy::Decision]
        # @param groups [Array<Policy::Group>] oldest first
        # @return [void]
        def keep(host, decision, groups)
          path = File.join(directory, "restart-#{Clock.time}-#{decision.worker.pid}.json")
          File.open(path, File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW, 0o600) do |file|
            file.write(text(host, decision, groups))
          end
          host.log("policy: the evidence is in #{path}")
          Dir[File.join(directory, "restart-*-*.json")][0...-FILES].each { |old| File.unlink(old) }
        rescue StandardError => e
          host.log("policy: no evidence was kept: #{e.message} (#{e.class})")
        end

        private

        def directory
          Workers.setting(:policy_evidence_directory) || Sockets.directory(Workers.setting(:socket_directory))
        end

        def text(host, decision, groups)
          report, first = host.reports(decision.worker.pid)
          body = { decision: decision.to_h, worker: report&.to_h&.except(:snapshot, :arenas, :costs),
                   grown_bytes: grown(report, first), classes: classes(host, decision.worker.pid) }
          groups.size.downto(0) do |number|
            text = JSON.generate({ **body, groups: groups.last(number).map(&:to_h) })
            return text if text.bytesize <= LIMIT
          end
          JSON.generate({ decision: body[:decision] })
        end

        def grown(report, first)
          return unless report&.leaves && first

          report.leaves.to_h { |path, bytes| [path, bytes - first.fetch(path, 0)] }
                .reject { |_path, bytes| bytes.zero? }.sort_by { |_path, bytes| -bytes.abs }.to_h
        end

        # Or why they are unknown: a worker may not have the room to walk its objects.
        def classes(host, pid)
          host.census(pid).by(:class).first(CLASSES).map(&:to_h)
        rescue StandardError => e
          e.message
        end
      end
    end
  end
end
