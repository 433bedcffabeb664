# frozen_string_literal: true

require "digest"
require "json"
require "socket"
require_relative "../remote/sockets"
Memscope::Loading.unit :Census

module Memscope
  class Workers < Reading
    # Keeps, in files that only this user can read, why a worker is restarted: the decision, the worker's last report
    # with its verdict and its memory by owner, how each row grew since its first report, the largest classes, and as
    # many of the readings behind the decision as fit. If `policy_evidence_directory` is set, also keeps all readings
    # there, for `memscope policy` to replay.
    #
    # @api private
    module Evidence
      # The largest file about a restart, in bytes.
      LIMIT = 50_000
      # The largest file of readings, in bytes; the previous file of readings is kept too.
      READINGS = 8 << 20
      # How many files about restarts, and how many outcomes, are kept; older files are deleted.
      FILES = 20
      # How many classes, those with the most memory.
      CLASSES = 30
      # The longest wait for a worker's answer, in seconds.
      PATIENCE = 30
      private_constant :LIMIT, :READINGS, :FILES, :CLASSES

      class << self
        # @param group [Policy::Group]
        # @return [void]
        # @raise [Sockets::Refused, SystemCallError] unless the directory and the file belong to this user only
        def record(group)
          return unless Workers.setting(:policy_evidence_directory)

          path = File.join(directory, "groups.jsonl")
          File.rename(path, File.join(directory, "groups.old.jsonl")) if File.size?(path).to_i > READINGS
          opened(path, File::WRONLY | File::CREAT | File::APPEND) { |file| file.write("#{group.to_json}\n") }
        end

        # Leaves the outcome of a restart for the successor of this process to measure.
        #
        # @param outcome [Hash] the fields of a Policy::Outcome, and `before`, the working set before the restart
        # @return [void]
        def leave(outcome)
          path = outcome_path
          new = "#{path}.#{Clock.time}"
          create(new, JSON.generate(outcome))
          File.rename(new, path)
          prune(/\Aoutcome-/)
        rescue SystemCallError, Sockets::Refused
          nil # then its successor does not know of the restart
        end

        # Takes what `leave` has left: another call finds nothing.
        #
        # @return [Array<Hash>] the restart, unless it was before the machine booted; none if nothing can be read
        def left
          path = outcome_path
          text = opened(path, File::RDONLY, &:read)
          File.unlink(path)
          outcome = JSON.parse(text, symbolize_names: true)
          before = Integer(outcome.delete(:before))
          known = Policy::Outcome.from_h(outcome)
          known.seconds < Clock.now ? [{ **known.to_h, before: before, others: {} }] : []
        rescue SystemCallError, Sockets::Refused, JSON::ParserError, ArgumentError, TypeError, NoMethodError
          []
        end

        # Raises nothing: a full disk must not prevent the restart.
        #
        # @param host [PumaHost, SingleHost]
        # @param decision [Policy::Decision]
        # @param groups [Array<Policy::Group>] oldest first
        # @return [void]
        def keep(host, decision, groups)
          path = File.join(directory, "restart-#{Clock.time}-#{decision.worker.pid}.json")
          create(path, text(host, decision, groups))
          host.log("policy: the evidence is in #{path}")
          prune(/\Arestart-\d+-\d+\.json\z/)
        rescue StandardError => e
          host.log("policy: no evidence was kept: #{e.message} (#{e.class})")
        end

        # Names the container, or the service. The process that is started in place of this one gets the same name.
        #
        # @return [String] 16 hexadecimal digits
        def place
          Digest::SHA256.hexdigest("#{Socket.gethostname}\n#{File.read('/proc/self/cgroup')}")[0, 16]
        end

        private

        def directory
          evidence = Workers.setting(:policy_evidence_directory)
          return Sockets.directory(evidence, purpose: :evidence) if evidence

          Sockets.directory(Workers.setting(:socket_directory))
        end

        def outcome_path = File.join(directory, "outcome-#{place}.json")

        def create(path, text)
          opened(path, File::WRONLY | File::CREAT | File::EXCL) { |file| file.write(text) }
        end

        # Does not block, as opening a pipe would.
        def opened(path, flags)
          File.open(path, flags | File::NOFOLLOW | File::NONBLOCK, 0o600) do |file|
            stat = file.stat
            own = stat.file? && stat.owned? && stat.mode.nobits?(0o077)
            raise Sockets::Refused, "#{path}: allowed: a file of uid #{Process.euid} with mode 0600" unless own

            yield file
          end
        end

        # Deletes all but the FILES newest. Another process may do so too.
        def prune(names)
          paths = Dir.children(directory).grep(names).map { |name| File.join(directory, name) }
          paths.sort_by { |path| File.mtime(path) }[0...-FILES].each { |old| File.unlink(old) }
        rescue Errno::ENOENT
          nil
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

        # The largest classes, or why they are unknown: a worker may lack the memory to walk its objects.
        def classes(host, pid)
          host.census(pid).by(:class).first(CLASSES).map(&:to_h)
        rescue StandardError => e
          e.message
        end
      end
    end
  end
end
