# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/memory_groups"
require_relative "../support/object_leaks"

# What the black boxes of processes near their memory limit say and cost, as `rake battery:deaths` asks: LEAKS=N of the
# leaks in test/fixtures/object_leaks.txt, and RUNS=N processes with and without a box.
class LimitsTest < MemscopeTest
  include MemoryGroups

  LEAKS = ENV.fetch("LEAKS", "0").to_i
  RUNS = ENV.fetch("RUNS", "0").to_i
  LIMIT = 160 << 20

  # Watched from its beginning, and its rows sampled twice: ten seconds apart, and at its end. The group's limit then
  # sinks to what the process uses, so that the same leak ends it.
  BEGINNING = <<~RUBY
    Memscope.configure { |c| c.black_box = ENV.fetch("BOXES") }
    Memscope::Workers.watch
    sleep 0.005 until Memscope::BlackBox.status&.fetch(:written_at, nil)
    RUNTIME = Memscope.const_get(:Runtime)
    Memscope::ObjectProfile.start if ENV["EVIDENCE"] == "profile"
    Memscope::LastReadings.heap_graph if ENV["EVIDENCE"] == "graph" # loads all that it needs
    RUNTIME.current.black_box.send(:near_the_end, Memscope::Clock.now, nil)
    BEGAN = Memscope::Clock.now
    BEFORE = Memscope.rss
  RUBY
  # Twelve mebibytes, or as much as it leaks in some seconds.
  ENDING = <<~RUBY
    Memscope::BlackBox::Runs.during("LeakJob") do
      number = 0
      step = lambda do |_|
        serve(number += 1) if number % 40 == 0
        leak(number += 1)
      end
      until Memscope.rss - BEFORE > 12 << 20 || Memscope::Clock.now - BEGAN > 60
        100.times(&step)
      end
      sleep 1 while Memscope::Clock.now - BEGAN < 11
      Memscope::LastReadings.heap_graph if ENV["EVIDENCE"] == "graph"
      File.write("leaked", "")
      sleep 12 # until the box has the new limit
      each = [4096 * number / (Memscope.rss - BEFORE), 1].max
      loop do # some 200 KiB in a second
        each.times(&step)
        sleep 0.02
      end
    end
  RUBY
  # A path without the kinds of keys, which a large graph need not have, and with all its steps.
  def self.plain(path) = path.gsub(/ \{\w+\}| key\b/, "").gsub(/(\w+) x2/, '\1 -> \1')

  # The rows that grow by a leak, and those of leaks by another name.
  GROWING = %w[malloc ruby_heap].freeze
  OTHERS = { "fibers" => %w[stacks] }.freeze
  # What the text of a death says right: by the leak, the lines that leak, the death as a Hash, and its reasons.
  RIGHT = {
    oom_kill: ->(_leak, _lines, said) { said[:ended].to_s == "oom_kill" },
    tag: ->(_leak, _lines, said) { said.dig(:tags, :runs, 0, :tag) == "LeakJob" },
    layer: ->(leak, _lines, said) { OTHERS.fetch(leak.name, GROWING).include?(said.dig(:growth, 0, :id).to_s) },
    # Garbage that no GC has freed yet may have more bytes.
    line: lambda do |_leak, lines, said|
      found = said.dig(:lines, :objects).to_a.first(3).map { |one| one[:line][/leaking.rb:(\d+)/, 1].to_i }
      found.intersect?(lines)
    end,
    retainer: lambda do |leak, _lines, said|
      rights = leak.paths.flat_map { |right| [right, right.rpartition(" -> ").first] } # without what is held
      said.dig(:heap, :retainers).to_a.first(3).any? do |one|
        path = plain(one[:path].join(" -> "))
        rights.any? { |right| [path, "#{path} -> #{one[:name]}"].any? { |found| File.fnmatch?(plain(right), found) } }
      end
    end,
    not_recorded: lambda do |_leak, _lines, said|
      said[:reasons].values_at(:lines, :heap).all? { |reason| reason.to_s.start_with?("not recorded: ") }
    end
  }.freeze
  # What more is asked with each evidence, and which share must be right.
  BY = { "profile" => :line, "graph" => :retainer, "none" => :not_recorded }.freeze
  GOALS = { oom_kill: 1, tag: 1, layer: 0.95, line: 0.9, retainer: 0.9, not_recorded: 1 }.freeze

  # Stays three percent below its limit.
  STAYS = <<~RUBY
    Memscope.configure { |c| c.black_box = ENV.fetch("BOXES", false) }
    Memscope::Workers.watch
    sleep 0.005 until Memscope::BlackBox.status&.fetch(:written_at, nil) || !ENV["BOXES"]
    left = -> { Memscope::Cgroup.read.headroom_bytes }
    limit = Memscope::Cgroup.read.limit_bytes
    held = []
    held << ("x" * (128 << 10)) while left.call > 0.03 * limit
    75.times { Array.new(100) { "x" * 200 } && sleep(0.02) }
    exit!(0)
  RUBY

  def setup
    super
    skip "only in rake battery:deaths" if LEAKS.zero? && RUNS.zero?
    skip_without_groups
    @said = Queue.new
  end

  # Runs a program in a directory and a group of its own. Returns how it ended, and its black box.
  def run_in_group(script, limit, boxes: true, **environment)
    Dir.mktmpdir do |directory|
      in_group(limit) do |group|
        environment = environment.transform_keys(&:to_s).merge("BOXES" => (File.join(directory, "boxes") if boxes))
        File.write("#{directory}/leaking.rb", script)
        command = within(group, [*ChildProcess.ruby, "-rjson", "-rmemscope", "leaking.rb"])
        pid = spawn(ChildProcess.environment(nil, environment), *command, %i[out err] => "#{directory}/log",
                                                                          chdir: directory, rlimit_core: 0)
        yield pid, directory, group if block_given?
        status = Process.wait2(pid).last
        box = Dir.glob("#{directory}/boxes/*.box").first
        return [status, box && Memscope.postmortem(box), File.read("#{directory}/log")]
      end
    end
  end

  def in_threads(items, count)
    work = Queue.new
    items.each { |item| work.push(item) }
    work.close
    threads = Array.new(count) do
      Thread.new do
        until (item = work.pop).nil?
          yield item
        end
      end
    end
    threads.each(&:join)
  end

  # Once the process has leaked, its limit sinks to a little more than it uses.
  def dead_of(leak, evidence)
    script = [BEGINNING, leak.program[/\A.*?(?=^\d+\.times do)/m], ENDING].join
    lines = script.lines.each_with_index.filter_map { |line, index| index + 1 if line.include?("# leaks") }
    death = run_in_group(script, LIMIT, EVIDENCE: evidence) do |pid, directory, group|
      sleep 0.05 until File.exist?("#{directory}/leaked") || !File.exist?("/proc/#{pid}/exe")
      File.write("#{group}/memory.limit_in_bytes", File.read("#{group}/memory.usage_in_bytes").to_i + (4 << 20))
    end
    [lines, *death]
  end

  def judge(leak, evidence)
    lines, status, death, log = dead_of(leak, evidence)
    names = [:oom_kill, :tag, :layer, BY.fetch(evidence)]
    wrong = names.reject { |name| death && RIGHT.fetch(name).call(leak, lines, death.to_h) }
    names.each { |name| @said.push([name, !wrong.include?(name)]) }
    puts "#{leak.name} with #{evidence}: not #{wrong.join(', ')}: #{status} #{log[0, 300]}\n#{death}" if wrong.any?
  end

  def test_leaks_that_end_at_a_limit
    skip "LEAKS=0" if LEAKS.zero?
    leaks = ObjectLeaks::ALL.cycle.first(LEAKS).zip(BY.keys.cycle)
    in_threads(leaks, 10) { |leak, evidence| judge(leak, evidence) } # most of the time, they sleep
    said = Array.new(@said.size) { @said.pop }.group_by(&:first).transform_values { |rights| rights.map(&:last) }
    right = said.map { |name, rights| "#{name} in #{rights.count(true)} of #{rights.size}" }
    puts "#{LEAKS} leaks, right: #{right.join(', ')}"

    said.each { |name, rights| assert_operator rights.count(true), :>=, GOALS.fetch(name) * rights.size, name }
  end

  # Fisher's exact test: how likely it is that two groups of `each` differ by chance as much as these two counts.
  def chance(counts, each)
    sum = counts.sum
    ways = ->(of, number) { [of, number, of - number].map { |n| Math.lgamma(n + 1).first }.reduce(:-) }
    likely = ->(one) { Math.exp(ways[each, one] + ways[each, sum - one] - ways[2 * each, sum]) }
    all = ([sum - each, 0].max..[sum, each].min).map(&likely)
    all.select { |one| one <= likely[counts.first] * (1 + 1e-9) }.sum
  end

  def test_processes_near_their_limit_with_and_without_a_box
    skip "RUNS=0" if RUNS.zero?
    in_threads(Array.new(RUNS) { [true, false] }.flatten.shuffle, 4) do |box|
      status, death, = run_in_group(STAYS, 72 << 20, boxes: box)
      @said.push([box, status.success?, death&.approach&.evidence])
    end
    said = Array.new(@said.size) { @said.pop }
    killed = [true, false].map { |box| said.count { |with, lived| with == box && !lived } }
    by_chance = chance(killed, RUNS)
    puts "#{RUNS} processes with a box, killed: #{killed.first}; without: #{killed.last}; p = #{by_chance.round(3)}; " \
         "evidence: #{said.filter_map(&:last).tally}"

    assert_operator by_chance, :>, 0.001
  end
end
