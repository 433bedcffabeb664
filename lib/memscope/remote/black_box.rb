# frozen_string_literal: true

require_relative "../heap/last_readings"
Memscope::Loading.units :Boxes, :Census, :MallocProfile, :ObjectProfile

module Memscope
  # The black box of this process: a file of 0.7 MB that outlives it, with its history, its last ledger, verdict,
  # census, heap graph, profile and tags. Memscope.postmortem reads it.
  #
  # Puma's plugin and Workers.watch (Sidekiq) start it, unless the setting `black_box` is false. The thread that samples
  # the process writes it: small parts every ten seconds, or every second when memory runs out. Nothing else waits for
  # the disk. A write that fails is a reason in `status`. A forked child begins a box of its own.
  #
  # A process that exits deletes its box, unless its memory grew without bound.
  class BlackBox
    %w[approach identity runs termination_log].each { |part| require_relative "black_box/#{part}" }

    # Seconds between two records, and between two of the kinds that cost more.
    SECONDS = 10
    SELDOM = 60
    # Seconds between two looks at the memory that is left, and between two samples near the end.
    LOOK = 1
    SOON = 0.5
    # Seconds until this process tells of others that have ended: their master may note their status first. And until it
    # does although its application has not booted.
    TELLS = (1.5..120)
    # The rows that are recorded of each list.
    ROWS = { census: 20, retainers: 10, lines: 10, threads: 50, runs: 50 }.freeze
    # The roles of processes that are not the topmost of their container.
    FORKED = /worker|child/
    private_constant :FORKED, :SECONDS, :SELDOM, :LOOK, :SOON, :TELLS, :ROWS

    class << self
      # Starts a box for this process, or for the process that forked it, in a moment. Raises nothing.
      #
      # @param role [String] "puma worker", "puma master", "puma", "sidekiq", "solid queue worker", "process"
      # @param index [Integer, nil] Puma's number of the worker
      # @yieldreturn [Boolean] whether the application has booted, and so has a logger and subscribers (default: it has)
      # @return [void]
      def start(role: Identity.role, index: nil, &booted)
        return unless Configuration.effective(:black_box)

        @hooked ||= hook
        launch(new(role, index, booted), 0)
      end

      # @return [Hash{Symbol => Object}, nil] `path`, `bytes`, `in_memory` (whether it counts in the memory of the
      #   container), `written_at` (milliseconds since 1970) and `reason`, a sentence why a part was not written; nil
      #   without a box
      def status
        box = Native.black_box or return Runtime.current.black_box&.status
        { **box, reason: Reasons.sentence(box[:reason]) }
      end

      private

      def hook
        Forks.listen(child: -> { forked }, daemon: -> { forked })
        at_exit { Runtime.current.black_box&.close($!) } # rubocop:disable Style/SpecialGlobalVars
      end

      # A child that ends within seconds has no box.
      def forked
        role = Runtime.current.forked_from_recorded
        launch(new("#{role.delete_suffix(' child')} child", nil, nil), SECONDS) if role
      end

      def launch(box, delay)
        runtime = Runtime.current
        runtime.sampling.cancel(runtime.black_box)
        runtime.black_box = box
        runtime.sampling.schedule(box, delay)
      rescue ThreadError
        nil # as for the history, which warns
      end
    end

    # @return [String]
    attr_reader :role

    def initialize(role, index, booted)
      @role = role
      @index = index
      @booted = booted
      @written = {}
      @approach = Approach.new
      @termination_log = TerminationLog.new unless role.match?(FORKED)
    end

    # Records what is due. Called by the thread that samples the process, and raises nothing.
    #
    # @return [Numeric] seconds until the next call
    def call
      open unless @opened
      return SELDOM unless Native.black_box

      record(Clock.now)
      tell
      pause
    rescue StandardError => e
      warn "memscope: black box: a record failed: #{e.message} (#{e.class})" unless @reason
      @reason = "#{e.message} (#{e.class})"
      pause
    end

    # @return [Hash{Symbol => String}, nil] why there is no box
    def status = @reason && { reason: @reason }

    # Ends the box with the process: deletes it unless memory grew without bound.
    #
    # @param error [Exception, nil] that ends the process
    def close(error)
      box = Native.black_box or return
      write(:ending, ending(error))
      Native.close_black_box
      SystemCall.attempt { File.unlink(box[:path]) } unless Runtime.current.verdict&.leak? || @approach.began?
    end

    private

    # Opens the box in the first directory that is not in memory or, if all are, in the first.
    def open
      @opened = true
      @role = Identity.title || @role # a child of Solid Queue has one by now
      identity = Identity.read(@role, @index)
      name = Boxes.file_name(Process.pid, ProcessIdentity.current.started)
      _on_disk, directory = [true, false].product(Boxes.directories).find { |disk, one| create(one, name, disk) }
      return unless directory

      @reason = nil
      write(:identity, identity)
      @began = Clock.now
      @untold = [directory, identity[:service]]
    end

    # Others of this service may have ended without anybody to tell of it.
    def tell
      return unless @untold

      age = Clock.now - @began
      return if age < TELLS.min || (age < TELLS.max && @booted && !@booted.call)

      Boxes.tell(*@untold)
      Boxes.sweep(@untold.first)
      @untold = nil
    end

    # @return [true, nil] nil for a directory in memory, if it must be on a disk, and for one that refuses the box
    def create(directory, name, on_disk)
      path = File.join(Sockets.directory(directory), name)
      opened = Native.open_black_box(path)
      raise Sockets::Refused, Reasons.sentence(opened) unless opened == true
      return true unless on_disk && Native.black_box[:in_memory]

      Native.close_black_box
      File.unlink(path)
      nil
    rescue Sockets::Refused => e
      @reason ||= e.message
      nil
    end

    def pause
      return SOON if @untold || @approach.near?

      @approach.limited? ? LOOK : SECONDS
    end

    # Near the end twice a second, and first what needs no memory.
    def record(now)
      began = @approach.look(now)
      due = began || now >= @due.to_f
      return unless due || @approach.near?

      Runtime.current.history&.step if @approach.near?
      record_memory
      return unless due

      @due = now + SECONDS
      near_the_end(now, began) if @approach.near?
      record_readings
      record_seldom(now, began)
      tell_container if @termination_log
    end

    def tell_container
      return @termination_log.clear unless @approach.close?

      @termination_log.write(Boxes.largest(File.dirname(Native.black_box[:path])).to_s) if @approach.near?
    end

    # Takes the readings itself.
    def near_the_end(now, began)
      runtime = Runtime.current
      runtime.ledger = Ledger.read_between_collections
      runtime.history&.offer(runtime.ledger, ProcessMemory.read)
      write(:approach, { at: Clock.text, why: began, evidence: @approach.take_evidence(now) }) if began
    end

    def record_memory
      write(:memory, { at: Clock.text, rss_bytes: Memscope.rss })
      write(:limit, @approach.limit) if @approach.limit
      write(:tags, { at: Clock.text, runs: Runs.now.first(ROWS[:runs]) })
    end

    # The readings that others have taken, when they are new.
    def record_readings
      runtime = Runtime.current
      renew(:ledger, runtime.ledger, &:to_h)
      renew(:verdict, runtime.verdict, &:to_h)
      renew(:findings, runtime.severities) { |found| found.map { |id, severity| { id: id, severity: severity } } }
      renew(:census, runtime.readings[:censuses]) { census(runtime.kept(:censuses).last) }
      renew(:heap, runtime.readings[:heap_graph]) { retainers(runtime.kept(:heap_graph).last) }
    end

    def record_seldom(now, began)
      new = !@profiled
      @profiled = MallocProfile.running? || ObjectProfile.running?
      return unless began || now >= @seldom.to_f || (@profiled && new)

      @seldom = now + SELDOM
      write(:threads, threads)
      write(:lines, lines) if @profiled
    end

    def renew(slot, reading)
      return if reading.nil? || reading.equal?(@written[slot])

      @written[slot] = reading
      write(slot, yield(reading))
    end

    # Halves the lists of a text that finds no room.
    def write(slot, body)
      written = Native.write_black_box(slot, JSON.generate(body))
      return unless written == :truncated && (list = body.each_value.grep(Array).max_by(&:size))

      write(slot, body.transform_values { |value| value.equal?(list) ? list.first(list.size / 2) : value })
    end

    def census(census)
      rows = census.by(:class).first(ROWS[:census])
      { at: census.at.strftime(Field::TIME), objects: census.total_count,
        classes: rows.map { |row| { name: row.name, objects: row.count, bytes: row.memsize_bytes } } }
    end

    def retainers(graph)
      paths = graph.paths.reject(&:own?).first(ROWS[:retainers])
      { at: graph.at.strftime(Field::TIME), retainers: paths.map do |path|
        { name: path.held_class || path.steps.last.name, objects: path.held_count || path.count,
          bytes: path.accumulated_bytes || path.retained_bytes, path: path.links }
      end }
    end

    # The lines of the profiles that run, by the application's line nearest to the allocation.
    def lines
      profiles = { malloc: MallocProfile, objects: ObjectProfile }
      { at: Clock.text, **profiles.transform_values { |profile| top(profile.snapshot) if profile.running? } }
    end

    def top(profile)
      profile.by(:caller).first(ROWS[:lines]).map do |entry|
        { line: [entry.path, entry.lineno].compact.join(":"), method_name: entry.name, live_bytes: entry.live_bytes,
          live_objects: (entry.live_objects if profile.objects?) }
      end
    end

    # How the process ends. An exception other than SystemExit has ended it with status 1.
    def ending(error)
      signal = Signal.signame(error.signo) if error.is_a?(SignalException)
      status = error.is_a?(SystemExit) ? error.status : (error && 1).to_i
      { at: Clock.text, how: signal ? :signal : :exit, status: (status unless signal), signal: signal }
    end

    def threads
      all = Thread.list
      { count: all.size,
        names: all.first(ROWS[:threads]).map { |thread| { name: thread.name, status: thread.status.to_s } } }
    end
  end
end
