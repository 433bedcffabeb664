# frozen_string_literal: true

require_relative "../../test_helper"
require_relative "../../support/profiles"

# What holds the objects of lines that keep growing, in a process that watches itself.
class ObjectHoldersTest < MemscopeTest
  parallelize_me!

  # Orders leak from line 4, and the Strings in them from line 3; a ring of as many Strings does not grow.
  PROGRAM = <<~RUBY
    module Bus; HANDLERS = []; end
    RING = Array.new(6_000)
    class Order; def initialize = @note = +"a note"; end
    def leak = Bus::HANDLERS << Order.new
    def turn(at) = RING[at %% 6_000] = +"ring"
    holders = Memscope::ObjectProfile::Holders
    { SECONDS: 0.01, REST: 0, BETWEEN: %<between>s }.each do |name, value|
      holders.send(:remove_const, name)
      holders.const_set(name, value)
    end
    Memscope::ObjectProfile.start(budget: 1)
    6_000.times { |at| turn(at) }
    %<before>s
    holders.watch(Memscope::ObjectProfile)
    waited = 0
    until Memscope::ObjectProfile.holders.size == %<wanted>s || (waited += 1) > 60
      2_000.times { |at| leak if at.even?; turn(at) }
      2.times { GC.start }
      sleep 0.05
    end
    profile = Memscope::ObjectProfile.snapshot
    puts JSON.generate(profile: profile.to_h, text: profile.to_s(width: 100), ascii: profile.to_s(unicode: false))
  RUBY

  def setup
    super
    skip_under_sanitizer
  end

  def watched(before: "", wanted: 2, between: 0)
    child_json(format(PROGRAM, before: before, wanted: wanted, between: between), requires: %w[json memscope])
  end

  def paths(profile) = (profile.holders || []).to_h { |holder| [holder.lineno, holder.to_s] }

  # A line that does not grow may exceed two of its errors by chance: of some processes, one must be without.
  def test_lines_that_grow_are_shown_with_what_holds_them
    answer = profile = nil
    3.times do
      answer = watched
      profile = Memscope::Profile.from_h(answer["profile"])
      break if paths(profile).keys.sort == [3, 4]
    end

    assert_equal({ 3 => "Bus::HANDLERS → Array → Order @note → String", 4 => "Bus::HANDLERS → Array → Order" },
                 paths(profile).sort.to_h)
    profile.holders.each { |holder| assert_includes 1..holder.sampled, holder.count }
    entry = profile.by(:line).find { |one| one.lineno == 4 }

    assert_equal "Bus::HANDLERS → Array → Order", profile.holder(entry).to_s
    assert_match(/-e:4 in Object#leak\n +held by Bus::HANDLERS → Array → Order$/, answer["text"])
    assert_match(/held by Bus::HANDLERS -> Array\s+-> Order$/, answer["ascii"])
  end

  # A profile of 12 epochs, with these samples of each line by the epoch they are of.
  def growing(unjudged: 12, **lines)
    stacks = lines.flat_map.with_index do |(_name, samples), frame|
      samples.map do |epoch, number|
        Profiles.stack([frame], 40_000 * number, epoch, samples: number, class_name: "Order",
                                                        live_objects: 1000 * number, error_objects: 1,
                                                        shares: [[1, 1_000_000, 1000 * number, 40_000 * number]])
      end
    end
    body = Profiles.whole(Profiles::FRAMES.values_at(*lines.keys), stacks,
                          backend: :objects, rate_bytes: nil, windows: 20, coverage: nil, allocations: 20_000_000,
                          equal_windows: 20.0, windows_share: 1.0, epoch: 13, generations: [*0..12],
                          unjudged_generation: unjudged, live_objects: stacks.sum { |stack| stack[:live_objects] })
    Memscope::ObjectProfile::Holders.growing(Memscope::Profile.capture(body)).map { |_path, lineno| lineno }
  end

  # A line that fills a cache at first, or that keeps the newest objects only, does not grow.
  def test_a_line_grows_that_keeps_objects_of_both_halves
    both = { 0 => 20, 3 => 20, 8 => 20, 11 => 20 }

    assert_equal [9], growing(put: both, main: { 1 => 60 }, set: { 10 => 60 })
    assert_equal [18, 9], growing(put: both, main: { 0 => 10, 9 => 60 }), "the one that keeps more of the later half"
    assert_empty growing(put: { 0 => 3, 8 => 3, 3 => 1, 11 => 1 }), "too few samples"
    assert_empty growing(put: both, unjudged: 9), "too young"
    assert_empty growing(put: { 0 => 60, 12 => 60 }, main: [2, 4, 6, 8].to_h { |epoch| [epoch, 1] }),
                 "what no full collection has judged"
  end

  # The other line has to wait for the next graph.
  def test_one_graph_at_a_time
    assert_equal 1, Memscope::Profile.from_h(watched(between: 600)["profile"]).holders.size
  end

  # A forked child continues the profile, and watches it itself.
  def test_in_a_forked_child
    answer = watched(before: <<~RUBY, wanted: 1)
      holders.watch(Memscope::ObjectProfile)
      (pid = fork) and (Process.wait(pid); exit!(true))
    RUBY

    refute_empty paths(Memscope::Profile.from_h(answer["profile"]))
  end

  # An invalid value is reported.
  def test_a_profile_for_as_long_as_the_process_runs
    script = "p Memscope::ObjectProfile.running?, Thread.list.map(&:name).include?('memscope objects')"
    ran = ChildProcess.run(script, requires: %w[memscope], env: { "MEMSCOPE_OBJECTS_PROFILE" => "1" })

    assert_equal "true\ntrue\n", ran.out
    assert_match(RUBY_VERSION < "3.3" ? /\Amemscope: objects_profile: before Ruby 3\.3, .* slower/ : /\A\z/, ran.err)
    ran = ChildProcess.run(script, requires: %w[memscope], env: { "MEMSCOPE_OBJECTS_PROFILE" => "always" })

    assert_equal "false\nfalse\n", ran.out
    assert_match(/^memscope: objects_profile: .* not profiled in process \d+: MEMSCOPE_OBJECTS_PROFILE: given/, ran.err)
  end

  # A program that has started a profile itself gets no thread, unless it wants one or somebody looks at the profile.
  def test_a_profile_of_the_program_is_watched_on_request
    watched = child_json(<<~RUBY, requires: %w[json memscope])
      profile = Memscope::ObjectProfile
      threads = -> { Thread.list.select { |thread| thread.name == "memscope objects" } }
      watched = -> { threads.call.any? }
      profile.start
      profile.snapshot
      answer = [watched.call]
      profile.lease.snapshot
      answer << watched.call
      profile.stop
      threads.call.each { |thread| thread.kill.join }
      profile.start(holders: true)
      puts JSON.generate([*answer, watched.call])
    RUBY

    assert_equal [false, true, true], watched
  end

  # A trap handler cannot take a lock.
  def test_in_a_trap_handler_only_a_profile_without_holders_starts
    message, running, started = child_json(<<~RUBY, requires: %w[json memscope])
      profile = Memscope::ObjectProfile
      profile.start(holders: true) # loads files, which a trap handler cannot
      profile.stop
      answer = []
      trap("USR1") do
        profile.start(holders: true)
      rescue Memscope::Unavailable => e
        answer = [e.message, profile.running?]
        profile.start
        answer << profile.running?
      end
      Process.kill(:USR1, Process.pid)
      sleep 0.01 until answer.size == 3
      puts JSON.generate(answer)
    RUBY

    assert_match(/\Aholders: true: .*trap context.*without holders/, message)
    refute running
    assert started
  end

  # The thread that watches has just seen that no profile runs, but has not ended yet.
  def test_a_profile_that_starts_while_the_last_watch_ends_is_watched
    watched = child_json(<<~RUBY, requires: %w[json memscope])
      profile = Memscope::ObjectProfile
      main = Thread.current
      seen = Queue.new
      watched = watching = false
      profile.singleton_class.prepend(Module.new do
        define_method(:running?) do
          super().tap do |runs|
            next if runs || Thread.current == main

            seen << Thread.current
            sleep 0.001 until watched || (watching && main.stop?) # it waits for this thread
          end
        end
      end)
      profile::Holders.watch(profile)
      ending = seen.pop
      profile.start
      watching = true
      profile::Holders.watch(profile)
      watched = true
      ending.join
      puts JSON.generate(Thread.list.map(&:name).include?("memscope objects"))
    RUBY

    assert watched
  end

  # Of 12,400 objects of a line, 400 hold all others, and more memory than the others.
  def test_the_path_to_most_objects_not_to_most_memory
    path, count, sampled = child_json(<<~RUBY, requires: %w[json memscope])
      $held = []
      Memscope::ObjectProfile.start(budget: 1)
      400.times { $held << Array.new(400) { |number| +"item" if number < 30 } }
      2.times { GC.start }
      found = Memscope::ObjectProfile::Holders.find(Memscope::ObjectProfile.with_objects, "-e", 3)
      puts JSON.generate([found.to_s(unicode: false), found.count, found.sampled])
    RUBY

    assert_match(/\A\$held -> Array x2 -> String\z/, path)
    assert_operator count, :>, sampled / 2
  end

  # Nothing is said of objects that are not sampled, or dead.
  def test_nothing_is_found_of_a_line_without_objects
    found, message = child_json(<<~RUBY, requires: %w[json memscope])
      Memscope::ObjectProfile.start(budget: 1)
      2.times { GC.start }
      found = Memscope::ObjectProfile::Holders.find(Memscope::ObjectProfile.with_objects, "nowhere.rb", 1)
      Memscope::ObjectProfile.stop
      message = begin
        Memscope::ObjectProfile::Holders.find(Memscope::ObjectProfile.with_objects, "nowhere.rb", 1)
      rescue Memscope::Unavailable => e
        e.message
      end
      puts JSON.generate([found, message])
    RUBY

    assert_nil found
    assert_match(/no object profile is running/, message)
  end
end
