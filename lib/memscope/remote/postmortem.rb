# frozen_string_literal: true

require "json"
require_relative "../value/loader" # before several threads need it at once
Memscope::Loading.units :History, :Verdict

module Memscope
  Record.declare(__FILE__)

  # How a process ended, and its memory at its last second, by its black box: where the memory was, what had grown, and
  # which requests and jobs ran.
  #
  #   death = Memscope.postmortem      # the last one in the directory of the boxes
  #   death.ended                      # => :oom_kill
  #   death.ledger[:malloc].bytes      # => 398458880
  #   puts death                       # all of it
  #
  # A box is data from elsewhere: a slot that is damaged or invalid is nil, with a reason.
  class Postmortem < Reading
    # :running; :exit, it exited by itself; :signal, it ended on a signal that it handles; :oom_kill, ended by the
    # kernel for lack of memory; :likely_oom_kill; :killed, by SIGKILL, a crash or exit! (without its status);
    # :unknown, it was killed, and it cannot be known whether for lack of memory.
    ENDS = declared(:ended).one_of
    # Those without a last word.
    VIOLENT = %i[oom_kill likely_oom_kill killed unknown].freeze
    # Seconds between two samples of a living process, and some more: a count of OOM kills that is read later than that
    # after a process's last sample was read after its end.
    AFTER = 15
    # Why what a process need not record is missing.
    UNRECORDED = { lines: :box_without_lines, heap: :box_without_heap, census: :box_without_census,
                   tags: :box_without_tags }.freeze
    # Times, in milliseconds, of four-digit years.
    TIMES = (0..253_402_300_799_999)
    # By which a Ruby ends that has crashed: before 4.0, always by ABRT.
    CRASHES = %w[ABRT BUS ILL SEGV].freeze
    # The part of its limit that a process near its end has left.
    LITTLE = 0.05
    WORDS = Words.beside(__FILE__)
    private_constant :AFTER, :UNRECORDED, :CRASHES, :LITTLE, :TIMES, :WORDS

    # One file: its checked slots, and the reasons for those that are invalid.
    # @api private
    class Box
      # The slots whose fields have their names.
      SLOTS = Postmortem.own_fields.map(&:name) - %i[path last_seen_at ended ended_why growth growth_since remedy]

      # What the name of the file with the status ends with (see Workers::Endings).
      ENDED = ".ended"
      KILL = Signal.list.fetch("KILL")

      def self.locked?(path) = File.open(path) { |file| !file.flock(File::LOCK_SH | File::LOCK_NB) }

      attr_reader :path, :slots, :reasons, :written_at

      # @raise [Invalid] without the identity of a process, or a time
      def initialize(path, body)
        @path = path
        @body = body
        @reasons = {}
        @slots = SLOTS.to_h { |name| [name, slot(name)] }
        @written_at = body[:written_at]
        valid = identity && TIMES.cover?(@written_at)
        Field.refuse("path", path, "the black box of a process", call: "Memscope.postmortem") unless valid
      end

      def identity = slots[:identity]

      # Of readings of that process.
      def envelope
        { memscope: identity.memscope, ruby: identity.ruby, pid: identity.pid, at: Clock.time, process: process }
      end

      def process = @process ||= ProcessIdentity.capture(identity.to_h.slice(:boot_id, :pid_namespace, :started))

      # @return [Integer, nil] as of waitpid, if a master has noted it
      def status
        file = "#{path}#{ENDED}"
        @status ||= Integer(File.read(file, 5), exception: false) if File.lstat(file).uid == File.lstat(path).uid
      rescue SystemCallError
        nil
      end

      # @return [Boolean] whether it had no time for a last word, and may have been killed by the kernel
      def silent? = !slots[:ending] && !running? && [nil, KILL].include?(status)

      # @return [Boolean] whether this machine has not been started again since
      def this_boot? = identity.boot_id == ProcessIdentity.current.boot_id

      # By the process's identity; for one of another pid namespace, by the lock that it holds on its box.
      def running?
        return Box.locked?(path) unless process.same_machine?(ProcessIdentity.current)

        now = ProcessIdentity.of(identity.pid)
        !now.started.nil? && now.same?(process)
      rescue SystemCallError
        false
      end

      # @return [Array(Integer, Integer)] times, and the count of OOM kills in the box's cgroup at each
      def counts
        began_at = Postmortem.milliseconds(identity.began_at)
        [[began_at, identity.oom_kills], [written_at, slots[:limit]&.oom_kills]].select(&:last)
      end

      # @return [Array<Object>] what is equal for boxes of one cgroup, which only then count the same kills
      def group = identity.to_h.values_at(:boot_id, :pid_namespace, :directory, :cgroup_inode)

      # @return [Integer, nil] the cgroup's count of OOM kills now; nil if it is gone, or another one has its place
      def kills_now
        directory = identity.directory
        return unless directory && process.same_machine?(ProcessIdentity.current)
        return if identity.cgroup_inode && File.stat(directory).ino != identity.cgroup_inode

        files = %w[memory.events memory.oom_control].map { |name| File.join(directory, name) }
        files.find { |file| File.file?(file) }&.then { |file| File.read(file)[/^oom_kill (\d+)$/, 1]&.to_i }
      rescue SystemCallError
        nil
      end

      def history = @body[:history] && History.of(@body[:history], envelope)

      private

      def slot(name)
        text = @body[:slots].dig(name, :text) or return
        field = Postmortem.declared(name)
        type = field.type
        given = JSON.parse(Field.utf8(text))
        # A newer memscope may write more keys.
        given = given.slice(*type.names.keys) if given.is_a?(Hash) && type.is_a?(Class) && type.superclass == Record
        Loader.value(field, given, "Memscope.postmortem")
      rescue JSON::ParserError, Invalid => e
        @reasons[name] = [:box_slot_invalid, e.is_a?(Invalid) ? e.as(e.argument) : "invalid or truncated JSON"]
        nil
      end
    end

    class << self
      # @api private
      def milliseconds(time) = (time.to_r * 1000).to_i

      # With the other boxes of its directory.
      # @api private
      def of(box, others: [box])
        began = Cost.now
        ended, why = ending(box, others)
        history = box.history
        growth = history ? growth(history, box.slots[:ledger]&.at || Field.time(box.written_at)) : []
        capture({ path: box.path, last_seen_at: box.written_at, **box.slots, ended: ended, ended_why: why,
                  growth: growth, growth_since: (milliseconds(history.rows_since) if growth.any?),
                  remedy: Verdict::Sentence.remedy(box.slots[:verdict]&.layer || :compare, "N"), # its successor's pid
                  reasons: { **UNRECORDED.reject { |name, _why| box.slots[name] }, **box.reasons },
                  cost: Cost.of(:T1, Cost.now - began) }, box.envelope)
      end

      private

      # How it ended, and the evidence in a sentence.
      def ending(box, others)
        last = box.slots[:ending]
        return told(:running) if box.running?
        return told(last.how, status: last.status || "?", signal: last.signal) if last
        return ended(box.status) unless box.silent?
        return told(:unknown, :restarted) unless box.this_boot?

        kept = others.select { |one| one.group == box.group }
        _at, before = box.counts.last
        at, after = later_count(box, kept, before)
        before && after && after >= before ? killed(box, kept, at, before, after) : uncounted(box)
      end

      def told(ended, text = ended, **figures) = [ended, WORDS.fill(text, figures)]

      # By a status other than SIGKILL's.
      def ended(status)
        signal = status & 0x7f
        return told(:exit, :exited, status: status >> 8) if signal.zero?

        name = Signal.signame(signal) || signal
        told(:killed, CRASHES.include?(name) ? :crashed : :signalled, signal: name)
      end

      # The first count of the cgroup's OOM kills that was read after the process's end, and when. One that has not
      # risen may have been read before it.
      def later_count(box, group, before)
        later = group.flat_map(&:counts).select do |at, kills|
          at > box.written_at + (kills > before.to_i ? 0 : AFTER * 1000)
        end
        now = box.kills_now
        [*later, *([[Clock.time, now]] if now)].min_by(&:first)
      end

      # The kernel counts its victims, but does not name them.
      def killed(box, group, at, before, after)
        return told(:killed, box.status ? :sigkill : :killed) if after == before

        window = (box.written_at - (AFTER * 1000))...at
        deaths = group.count { |one| window.cover?(one.written_at) && one.silent? }
        ended = after - before >= deaths ? :oom_kill : :likely_oom_kill
        told(ended, deaths > 1 ? ended : :only_death, before: before, after: after, deaths: deaths)
      end

      def uncounted(box)
        limit = box.slots[:limit]
        left = limit&.headroom_bytes
        near = box.slots[:approach] && left && limit.limit_bytes && left < LITTLE * limit.limit_bytes
        return told(:unknown) unless near

        told(:likely_oom_kill, :near, left: Quantity.size(left), limit: Quantity.size(limit.limit_bytes))
      end

      # Up to the last ledger, beside which it is shown. Rows are sampled together, so that their growth sums to that of
      # the RSS.
      def growth(history, ending)
        hour = ending - 3600
        whole = history.rows_since
        grown = (history.series & History::ROWS).map do |id|
          life = known(history.points(id), ending)
          last_hour = known(history.points(id, since: hour), ending) if whole && whole <= hour
          { id: id, bytes: life.last, hour_bytes: change(last_hour), life_bytes: change(life) }
        end
        grown.select { |row| row[:life_bytes] }.sort_by { |row| -row[:life_bytes] }
      end

      def known(points, ending) = points.select { |point| point.at <= ending }.filter_map(&:last)

      def change(values) = (values.last - values.first if values&.any?)
    end

    # @return [Boolean] whether the process could not say that it ends
    def violent? = VIOLENT.include?(ended)

    # @api private
    # @return [String] "oom kill", "exit", …
    def word = ended.name.tr("_", " ")

    # @return [Integer, nil] at the last sample
    def rss_bytes = memory&.rss_bytes || ledger&.rss_bytes

    # @return [String] one line for a log
    def sentence
      WORDS.fill(:told, role: identity.role, pid: identity.pid, at: last_seen_at.strftime("%F %T"),
                        rss: Quantity.size(rss_bytes), why: ended_why, path: path,
                        release: (", release #{identity.release}" if identity.release))
    end

    # @api private
    def known? = true
  end
end
