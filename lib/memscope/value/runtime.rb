# frozen_string_literal: true

require_relative "forks"

module Memscope
  # The state of one process between two calls: the thread that samples it, and its last readings. A forked child
  # begins with nothing of it.
  # @api private
  class Runtime
    @lock = Mutex.new

    # @return [Runtime] of this process
    def self.current
      return @current if @current&.pid == Process.pid

      @lock.synchronize { @current&.pid == Process.pid ? @current : (@current = new(@current)) }
    end

    # `sampling`, the thread that samples this process (Sampling). `forked_from_sampled`: whether the process that
    # forked this one kept a history. `forked_from_recorded`: the role of that process's black box, if it had one.
    # `readings`, by name: the last ones that pages and other processes requested.
    attr_reader :pid, :sampling, :forked_from_sampled, :forked_from_recorded, :readings
    # `history` (History::Sampler) takes the samples of the history, `workers` (Workers::Watch or Cluster) the readings
    # for the workers' table. `verdict` is the last one on the history, `severities` are those of the last diagnosis's
    # findings, by id. `ledger` is the last one, `black_box` (BlackBox) what records them. Each is nil if there is none.
    attr_accessor :history, :workers, :verdict, :severities, :ledger, :black_box

    def initialize(parent = nil)
      @pid = Process.pid
      @forked_from_sampled = !parent&.history.nil?
      @forked_from_recorded = parent&.black_box&.role
      @sampling = Sampling.new
      @readings = {}
    end

    # Keeps a reading of this process, for pages of any worker and for the doctor. Its text of Marshal takes a tenth of
    # the memory of its objects, adds hardly any object to the next census, and never leaves the process.
    #
    # @return [Reading] the same reading
    def keep(name, reading, most: 1)
      @readings[name] = [*@readings.fetch(name, []), Marshal.dump(reading).freeze].last(most).freeze
      reading
    end

    # @return [Array<Reading>] the kept readings, the oldest first
    def kept(name)
      @readings.fetch(name, []).map { |text| Marshal.load(text, freeze: true) } # rubocop:disable Security/MarshalLoad
    end

    # The one thread of a process that samples it: runs each task when it is due, and waits for nobody else.
    # @api private
    class Sampling
      # `work` runs when it is `due`, in seconds of Clock.now, and returns the seconds until it is due again.
      Task = Struct.new(:work, :due)

      def initialize
        @lock = Mutex.new
        @changed = ConditionVariable.new
        @tasks = []
      end

      # Starts the thread if it does not run.
      #
      # @param work [#call] replaces the task with the same work
      # @param seconds [Numeric] until it is due
      # @raise [ThreadError] if no thread can be started
      def schedule(work, seconds = 0)
        @lock.synchronize do
          @tasks = [*@tasks.reject { |task| task.work.equal?(work) }, Task.new(work, Clock.now + seconds)]
          @thread = Forks.background("memscope sampler") { run } unless @thread&.alive?
          @changed.signal
        end
      end

      def cancel(work)
        @lock.synchronize do
          @tasks = @tasks.reject { |task| task.work.equal?(work) }
          @changed.signal
        end
      end

      def run?(work) = @thread&.alive? == true && @tasks.any? { |task| task.work.equal?(work) }

      private

      def run
        while (task = await)
          seconds = task.work.call
          @lock.synchronize { task.due = Clock.now + seconds }
        end
      end

      # Returns nil once there is no task, so that the thread ends.
      def await
        @lock.synchronize do
          while (task = @tasks.min_by(&:due))
            left = task.due - Clock.now
            return task unless left.positive?

            @changed.wait(@lock, left)
          end
          @thread = nil
        end
      end
    end
  end
end
