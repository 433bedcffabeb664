# frozen_string_literal: true

# A server with forked workers in one container, simulated in steps of 5 seconds, in MiB, as the input and the target of
# restart rules. A worker warms up, fills a cache, loses shared pages, leaks by the work it does, serves fat requests
# that leave free memory behind, drains before it stops, boots, and may die booting. When the working set exceeds the
# limit, the kernel kills the largest worker, or all processes of the container (memory.oom.group, as Kubernetes has it
# on cgroup v2).
#
# Events from outside (load, fat requests, another process, boots that fail) are a function of the trace and of time, so
# that they are the same for each rule.
class WorkerCluster
  STEP = 5
  # How long the container itself needs to come back.
  CONTAINER_SECONDS = 20
  DRAIN_SECONDS = 5

  # One worker process.
  class Worker
    attr_reader :index, :pid, :started, :leaked, :free, :garbage
    attr_accessor :state, :until, :spike, :spike_until

    def initialize(index, pid, started, boot_seconds, trace)
      @index = index
      @pid = pid
      @started = started
      @trace = trace
      @state = :booting
      @until = started + boot_seconds
      @warm = 0.1 * trace.base
      @cached = @unshared = @leaked = @free = @garbage = @spike = 0.0
      @spike_until = 0
      @load = 0.0
    end

    def serving? = @state == :serving
    def uptime(now) = now - @started

    # Memory that only it maps.
    def private = @warm + @cached + @unshared + @leaked + @garbage + [@free, @spike].max + (@load * @trace.work)

    # Resident memory, including pages shared with the others.
    def rss = private + (@trace.shared - @unshared)

    def advance(now, load)
      @load = load
      @warm += (@trace.base - @warm) * (load * STEP / @trace.warm_up)
      @cached += (@trace.cache - @cached) * (load * STEP / @trace.cache_time)
      @unshared += (@trace.unshared - @unshared) * (load * STEP / 7200)
      @leaked += @trace.leak(@index) * load * STEP / 3600
      @garbage = (@garbage + (0.002 * @trace.base * load)) % (0.08 * @trace.base) if load.positive?
      return unless @spike.positive? && now >= @spike_until

      @free = [@free, 0.75 * @spike].max
      @spike = 0.0
    end

    # Its hourly growth, as an observer would estimate it.
    def growth
      share = [@load, 0.05].max * 3600
      (@trace.leak(@index) * share / 3600) + ([@trace.base - @warm, 0].max * [share / @trace.warm_up, 1].min) +
        ((@trace.cache - @cached) * [share / @trace.cache_time, 1].min)
    end

    def purge = @free *= 0.2
    def filling? = @trace.cache - @cached > 0.1 * @trace.cache && @trace.cache.positive?

    # A fat request, which takes a minute.
    def hit(now, size)
      @spike = size
      @spike_until = now + 60
    end
  end

  # Everything that happened.
  Result = Struct.new(:oom_kills, :restarts, :lost_seconds, :least_serving, :seconds, keyword_init: true)

  attr_reader :now, :workers, :trace, :result, :boots, :master_pid

  def initialize(trace, rule)
    @trace = trace
    @rule = rule
    @now = 0
    @pid = 100
    @fat = trace.fat_requests.dup
    @result = Result.new(oom_kills: 0, restarts: 0, lost_seconds: 0, least_serving: trace.count, seconds: 0)
    start
  end

  def run(steps)
    steps.times { step }
    @result.seconds = @now
    @result
  end

  def step
    @now += STEP
    @workers.map! { |worker| successor(worker) }
    serve
    out_of_memory if @trace.limit && working_set > @trace.limit
    @rule.step(self)
    lost = @trace.count - @workers.count(&:serving?)
    @result.lost_seconds += lost * STEP
    @result.least_serving = [@result.least_serving, @trace.count - lost].min
  end

  # What the group of processes uses, shared pages once.
  def working_set = @trace.master + @trace.shared + @workers.sum(&:private) + @trace.neighbour(@now)

  # On TERM, the worker finishes its requests and exits. Its master then starts another.
  def terminate(worker)
    return if worker.state == :stopping

    @result.restarts += 1
    worker.state = :stopping
    worker.until = @now + DRAIN_SECONDS
  end

  private

  def start
    @master_pid = @pid += 1
    @boots = Hash.new(0)
    @workers = Array.new(@trace.count) { |index| fork_worker(index) }
  end

  def fork_worker(index) = Worker.new(index, @pid += 1, @now, @trace.boot_seconds, @trace)

  # The worker or its successor.
  def successor(worker)
    return worker if worker.serving? || @now < worker.until
    return fork_worker(worker.index) if worker.state == :stopping

    if @trace.boot_fails?(@now)
      @boots[worker.index] += 1
      return fork_worker(worker.index)
    end
    worker.state = :serving
    worker
  end

  def serve
    serving = @workers.select(&:serving?)
    load = serving.empty? ? 0.0 : @trace.load(@now) * @trace.count / serving.size
    @workers.each { |worker| worker.advance(@now, worker.serving? ? [load, 1.5].min : 0.0) }
    while @fat.any? && @fat.first[:at] <= @now
      request = @fat.shift
      serving[request[:worker] % serving.size].hit(@now, request[:size]) if serving.any?
    end
  end

  def out_of_memory
    @result.oom_kills += 1
    if @trace.oom_group
      start
      @workers.each { |worker| worker.until += CONTAINER_SECONDS }
      @rule.lost(self)
    else
      largest = @workers.max_by(&:private)
      @workers[@workers.index(largest)] = fork_worker(largest.index)
    end
  end
end

# Events from outside, and the application's properties, by kind and seed.
class ClusterTrace
  KINDS = %i[healthy leak_of_all fast_leak leak_of_one filling_cache fat_request waves neighbours tight_limit
             failing_boots slow_boots copy_on_write no_limit mixture].freeze

  attr_reader :kind, :count, :shared, :master, :base, :cache, :unshared, :work, :warm_up, :cache_time, :boot_seconds,
              :limit, :oom_group, :fat_requests, :supervisor, :fork_worker

  # @param kind [Symbol] one of KINDS
  # @param seed [Integer]
  # @param seconds [Integer] how long it is at most
  def initialize(kind, seed, seconds)
    @kind = kind
    @random = Random.new((seed * 1009) + KINDS.index(kind))
    @seconds = seconds
    @count = between(2, 8).round
    @shared = between(100, 300)
    @master = between(20, 60)
    @base = between(80, 250)
    @warm_up = between(300, 1200)
    @cache = @unshared = 0.0
    @cache_time = 7200.0
    @work = between(0.05, 0.2) * @base
    @boot_seconds = between(10, 60).round
    @oom_group = @random.rand < 0.5
    @leaks = Array.new(@count, 0.0)
    @fat_requests = []
    @bursts = []
    @neighbour = []
    @failing = []
    @supervisor = :puma
    @fork_worker = false
    @phase = @random.rand
    @fill = between(0.5, 0.7)
    shape
    @limit = (demand / @fill).round unless kind == :no_limit
  end

  # The share of time in which each worker is busy, 0 to 1.
  def load(now)
    day = 0.5 + (0.3 * Math.sin(2 * Math::PI * ((now / 86_400.0) + @phase)))
    burst = @bursts.any? { |from, to| now.between?(from, to) } ? 2.0 : 1.0
    [day * burst, 1.0].min
  end

  def neighbour(now)
    @neighbour.sum do |from, to, size, ramp|
      now.between?(from, to) ? size * [(now - from) / ramp, 1.0].min : 0.0
    end
  end

  def leak(index) = @leaks[index]
  def boot_fails?(now) = @failing.any? { |from, to| now.between?(from, to) }

  # Memory when all is warm, without leaks, fat requests or other processes.
  def demand = @master + @shared + (@count * (@base + @cache + @unshared + (0.6 * @work)))

  private

  def between(least, most) = least + ((most - least) * @random.rand)

  # Applies the properties of the kind: none for :healthy and :no_limit.
  def shape = respond_to?(@kind, true) && send(@kind)

  def leak_of_all = leak_by(0.01, 0.08)
  def fast_leak = leak_by(0.2, 0.5)
  def leak_of_one = @leaks[@random.rand(@count)] = between(0.02, 0.12) * demand
  def filling_cache = @cache = between(0.3, 1) * @base
  def fat_request = fat_by(6, 1.0)
  def waves = burst_by(8)
  def tight_limit = @fill = between(0.93, 1.0)
  def copy_on_write = @unshared = between(0.4, 0.8) * @shared

  def failing_boots
    leak_by(0.03, 0.1)
    3.times { @failing << [from = @random.rand(@seconds), from + between(1800, 14_400)] }
  end

  def slow_boots
    leak_by(0.03, 0.1)
    @boot_seconds = between(120, 300).round
  end

  def mixture
    leak_by(0.01, 0.1) if @random.rand < 0.5
    @cache = between(0.1, 0.6) * @base if @random.rand < 0.5
    fat_by(between(1, 6), between(0.3, 1)) if @random.rand < 0.5
    burst_by(between(2, 8)) if @random.rand < 0.5
    neighbours if @random.rand < 0.25
    @unshared = between(0.1, 0.5) * @shared
    @failing << [from = @random.rand(@seconds), from + between(600, 7200)] if @random.rand < 0.25
    @fill = between(0.55, 0.85)
    @fork_worker = @random.rand < 0.2
    @supervisor = nil if @random.rand < 0.1
  end

  # At half load, the workers together leak this share of `demand` an hour.
  def leak_by(least, most)
    rate = between(least, most) * demand / @count * 2
    @leaks = Array.new(@count) { rate * between(0.8, 1.2) }
  end

  def fat_by(times_a_day, size)
    (times_a_day * @seconds / 86_400.0).ceil.times do
      @fat_requests << { at: @random.rand(@seconds), worker: @random.rand(64),
                         size: between(0.1, 0.25) * size * demand }
    end
    @fat_requests.sort_by! { |request| request[:at] }
  end

  def burst_by(times_a_day)
    (times_a_day * @seconds / 86_400.0).ceil.times do
      @bursts << [from = @random.rand(@seconds), from + between(120, 1800)]
    end
  end

  def neighbours
    (@seconds / 86_400.0).ceil.times do
      @neighbour << [from = @random.rand(@seconds), from + between(1800, 14_400), between(0.2, 0.6) * demand,
                     between(60, 3600)]
    end
  end
end
