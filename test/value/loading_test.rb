# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"

# Files load in any order, without any warning from Ruby, such as those about circular requires.
class LoadingTest < MemscopeTest
  parallelize_me!

  # What programs require.
  REQUIRED = Dir["*.rb", base: File.join(ChildProcess::ROOT, "lib/memscope")].map { |file| file[0..-4] }.sort
  # The values, and the files of Loading::FILES, which load after memscope.
  PARTS = [*Dir["value/*.rb", base: File.join(ChildProcess::ROOT, "lib/memscope")].map { |file| file[0..-4] },
           *Memscope::Loading::FILES.values.map { |path| path[%r{lib/memscope/(.*)\.rb\z}, 1] }].uniq.sort
  # These need a gem, and say so.
  NOT_ALONE = %w[irb open_telemetry prometheus_collector sidekiq_web web web/web yabeda].freeze

  # Loads each file alone, in a forked child that has loaded nothing else, or only memscope.
  EACH = <<~'RUBY'
    require "memscope" if ARGV[1] == "after"
    ARGV[0].split(",").each do |name|
      pid = fork { require "memscope/#{name}" }
      warn "memscope/#{name} fails" unless Process.wait2(pid).last.success?
    end
  RUBY

  ALL = <<~RUBY
    %i[rss allocator snapshot ledger mappings arenas size_classes fragmentation ruby_heap census process_memory cgroup
       history lint tune].each { |call| Memscope.public_send(call).then { |reading| reading.to_s + reading.to_json } }
    Memscope.ledger(deep: true, shared: true, objects: true, strict: true).to_s
    Memscope.report
    Memscope.purge(dry_run: true).to_s
    Memscope.purge.to_s
    earlier = Memscope.doctor
    Memscope.doctor(since: Memscope::Diagnosis.from_json(earlier.to_json)).to_s
    (Memscope.snapshot - earlier.evidence.snapshot).to_s
  RUBY

  { "before" => REQUIRED, "after" => [*REQUIRED, *PARTS] }.each do |order, files|
    define_method("test_each_file_loads_#{order}_memscope") do
      assert_silent_child ChildProcess.run("ARGV.replace(#{[(files - NOT_ALONE).join(','), order].inspect})\n#{EACH}",
                                           ruby_args: ["-w"], gems: true)
    end
  end

  both_allocators "everything that memscope does", in_full: [:jemalloc] do |preload|
    assert_silent_child ChildProcess.run(ALL, preload: preload, requires: %w[json memscope], ruby_args: ["-w"])
  end

  # Calls that load files when they are first made.
  FIRST_CALLS = ["census.then { |one| one.class.from_json(one.to_json).to_s + (one - one).to_s }", "doctor.to_s",
                 "heap_graph.then { |one| one.to_s + (one - one).to_s }", "ledger(garbage: true).to_s",
                 "malloc_profile(backend: :imports) {}.then { |one| one.to_pprof && one.to_html + (one - one).to_s }",
                 "measure {}.to_s", "tags.to_s", "purge(:gc).to_s", "purge(dry_run: true).to_s", "workers.to_s",
                 "history.to_s", "verdict.to_s", "lint.to_s", "tune.to_s",
                 "listen.close", "dump(File.join(ARGV[0], rand.to_s)).to_s", "configure {}", "tag('x') {}",
                 "eager_load!", "report(StringIO.new)"].freeze

  # Raises an exception in the thread as each file begins, and says where one came through.
  # Of texts that are evaluated, the path is "(eval at …)".
  EXCEPTIONS = <<~'RUBY'
    require "memscope"
    require "stringio"
    $stdout.sync = true
    came = Class.new(Exception)
    CALLS.each do |call|
      pid = fork do
        TracePoint.trace(:script_compiled) do |trace|
          path = trace.instruction_sequence.path
          Thread.current.raise(came) if path.match?(%r{\A/.*/lib/memscope/})
        rescue came
          puts "#{call}: #{path}"
        end
        begin
          eval("Memscope.#{call}")
          exit!(0)
        rescue came # after the files were loaded
          retry
        end
      end
      puts "#{call} fails" unless Process.wait2(pid).last.success?
    end
  RUBY

  def test_no_exception_for_the_thread_cuts_a_file_short
    skip_under_sanitizer
    Dir.mktmpdir do |directory|
      script = "ARGV[0] = #{directory.inspect}\nCALLS = #{FIRST_CALLS.inspect}\n#{EXCEPTIONS}"

      assert_empty ChildProcess.run(script).out
    end
  end

  # Kills the thread that first makes the call, at some of the lines that it runs; then another thread makes the call.
  KILLS = <<~'RUBY'
    require "memscope"
    lines = lambda do |at|
      count = 0
      asked = Queue.new
      killed = Queue.new
      first = Thread.new do
        Thread.stop
        eval(CALL)
      end
      Thread.pass until first.stop?
      killer = Thread.new { asked.pop && first.kill && killed.push(true) }
      trace = TracePoint.new(:line) do |event|
        next unless Thread.current.equal?(first) && event.path.match?(%r{\A/.*/lib/memscope/}) && (count += 1) == at

        asked.push(true)
        killed.pop
      end
      trace.enable
      first.run.join
      trace.disable
      killer.kill
      count
    end
    inside = lambda do |&work|
      reading, writing = IO.pipe
      Process.wait(fork { exit!(writing.write(work.call.to_s) > 0) })
      writing.close
      reading.read
    end
    all = inside.call { lines.call(0) }.to_i
    puts "no lines" if all < 100
    (1..TIMES).each do |time|
      at = all * time / (TIMES + 1)
      kind = inside.call { lines.call(at) && Thread.new { eval(CALL).class }.value }
      puts "#{kind} after line #{at}" unless kind == "String"
    end
  RUBY

  %w[tags.to_s doctor.to_s].each do |call|
    define_method("test_a_killed_thread_leaves_#{call.tr('.', '_')}_loaded") do
      skip_under_sanitizer
      ran = ChildProcess.run("CALL = 'Memscope.#{call}'\nTIMES = 6\n#{KILLS}")

      assert_empty ran.out
      assert_silent_child ran
    end
  end

  # A constant that a program names first is loaded by Ruby's autoload, which an exception can leave in the middle: at
  # some of the lines that it runs. Then another thread uses the constant; since Ruby 3.2 also one that has waited for
  # it. In Ruby 3.1, such a thread loads the file beside what the first thread has defined, not over it.
  ABORTED = <<~'RUBY'
    require "memscope"
    came = Class.new(Exception)
    use = -> { Thread.new { eval("Memscope::#{CALL}").class } }
    abort_at = lambda do |at, waits|
      count = 0
      user = nil
      trace = TracePoint.new(:line) do |event|
        next unless Thread.current == Thread.main && event.path.match?(%r{\A/.*/lib/memscope/}) && (count += 1) == at

        user = use.call if waits
        Thread.pass until user.nil? || user.stop?
        Thread.current.raise(came)
      end
      trace.enable do
        Memscope.const_get(CALL[/\w+/])
        puts "#{CALL} was loaded at line #{at}" unless at.zero?
      rescue came
        puts "#{CALL} aborted at line #{at}: not String" unless (user || use.call).value == String
      end
      count
    end
    reading, writing = IO.pipe
    Process.wait(fork { writing.puts(abort_at.call(0, false)) })
    all = reading.gets.to_i
    [false, *(true if RUBY_VERSION >= "3.2")].product((1..TIMES).to_a) do |waits, time|
      Process.wait(fork { exit!(abort_at.call(all * time / (TIMES + 1), waits).positive?) })
      puts "#{CALL} fails" unless $?.success?
    end
    puts "no lines" if all < 100
  RUBY

  ["HeapGraph.take(in: :process).to_s", "Census.read.to_s", "Lint.read.to_s"].each do |call|
    define_method("test_an_aborted_autoload_leaves_#{call[/\w+/]}_usable") do
      skip_under_sanitizer
      ran = ChildProcess.run("CALL = #{call.inspect}\nTIMES = 5\n#{ABORTED}")

      assert_empty ran.out
      assert_predicate ran, :success?, ran
    end
  end

  # While one thread loads what Memscope.tags needs, and has begun to define a class, another thread uses that class.
  BESIDE = <<~RUBY
    require "memscope"
    other = nil
    trace = TracePoint.new(:class) do |event|
      next unless other.nil? && event.path.end_with?("/lib/memscope/profile/malloc_profile.rb")

      other = Thread.new { Memscope.tag("beside") { "used" } }
      Thread.pass until other.stop?
    end
    trace.enable
    Memscope.tags
    trace.disable
    print other.value
  RUBY

  def test_no_thread_sees_what_another_thread_is_loading
    assert_equal "used", ChildProcess.run(BESIDE).out
  end

  def test_a_first_use_without_descriptors_says_so
    ran = ChildProcess.run(<<~RUBY)
      require "memscope"
      graph = -> { Memscope.heap_graph(in: :process).class }
      limit = Process.getrlimit(:NOFILE)
      Process.setrlimit(:NOFILE, Dir.children("/proc/self/fd").map(&:to_i).min, limit.last)
      begin
        graph.call
      rescue Errno::EMFILE => e
        puts e.message
      end
      Process.setrlimit(:NOFILE, *limit)
      puts graph.call
    RUBY

    assert_match(/memscope cannot load a part .*: no descriptor is free .*\nMemscope::HeapGraph\n\z/, ran.out,
                 ran)
  end

  # The end of the last page of the extension's file that is resident once it is loaded. Bit 63 of an entry in pagemap
  # means present, bit 61 a file's page.
  LAST_PAGE = <<~'RUBY'
    ends = File.readlines("/proc/self/maps").grep(/memscope\.so$/).flat_map do |line|
      from, to, offset = line.match(/\A(\h+)-(\h+) \S+ (\h+)/).captures.map(&:hex)
      pages = IO.binread("/proc/self/pagemap", (to - from) / 4096 * 8, from / 4096 * 8).unpack("Q*")
      pages.each_index.select { |page| pages[page][63] + pages[page][61] == 2 }.map { |page| offset + (page + 1) * 4096 }
    end
    puts ends.max
  RUBY

  # layout.ld gathers what loading reads and runs in the first 64 KiB, or 88 with a C library that knows no packed
  # relocations; the kernel maps up to 60 more after the page that it needs. A page that is not gathered is most likely
  # in the 130 KiB that follow.
  both_allocators "what loading makes resident of the extension" do |preload|
    skip_under_sanitizer
    extension = File.join(ChildProcess::EXTENSION_DIRECTORY, "memscope/memscope.so")
    skip "this linker takes no layout" unless File.binread(extension).include?(".text.at_load")
    skip "code has another size here" unless RUBY_PLATFORM.include?("x86_64")

    Dir.mktmpdir do |directory|
      copy_by_pages(extension, directory)
      ruby, *arguments = ChildProcess.ruby
      loaded = ChildProcess.run_command(ruby, "-I#{directory}", *arguments, "-rmemscope", "-e", LAST_PAGE,
                                        preload: preload)

      assert_predicate loaded, :success?, loaded
      assert_includes 4096..(152 * 1024), loaded.out.to_i
    end
  end

  # Only a malloc profile needs these 100 KiB.
  def test_the_unwinder_is_loaded_with_the_first_profile
    skip_under_sanitizer
    mapped = ChildProcess.run('puts File.read("/proc/self/maps").include?("libgcc_s")', requires: ["json"]).json
    skip "this Ruby is linked with libgcc_s itself" if mapped
    before, after = child_json(<<~RUBY, requires: ["json"])
      mapped = -> { File.read("/proc/self/maps").include?("libgcc_s") }
      before = mapped.call
      Memscope.malloc_profile(backend: :imports) { "x" * 100_000 }
      puts JSON.generate([before, mapped.call])
    RUBY

    assert_equal [false, true], [before, after]
  end

  # A file that is written page by page has no large folios, which the kernel maps whole.
  def copy_by_pages(extension, directory)
    Dir.mkdir(File.join(directory, "memscope"))
    File.open(File.join(directory, "memscope/memscope.so"), "wb", 0o755) do |copy|
      content = File.binread(extension)
      0.step(content.size - 1, 4096) { |offset| copy.syswrite(content.byteslice(offset, 4096)) }
    end
  end

  def assert_silent_child(ran)
    assert_predicate ran, :success?, ran
    assert_empty ran.err.lines.grep(/memscope/).join
  end
end

# A gem that a part of memscope needs.
class LoadingGemTest < MemscopeTest
  def load(gem:, **given) = Memscope::Loading.gem(gem, "memscope/orbit", **given)

  def test_a_gem_that_is_there_is_loaded
    with_file("orbit_feature.rb", "ORBIT_FEATURE = 1") { load(gem: "orbit", feature: "orbit_feature") }

    assert_equal 1, ORBIT_FEATURE
  end

  def test_one_that_is_missing_is_named_with_its_line_for_the_gemfile
    { {} => 'gem "orbit-gem"', { version: ">= 2.2" } => 'gem "orbit-gem", ">= 2.2"' }.each do |given, line|
      error = assert_raises(LoadError) { load(gem: "orbit-gem", **given) }

      assert_equal "memscope/orbit needs the gem orbit-gem, which is not installed: add `#{line}` to the Gemfile, or " \
                   "run gem install orbit-gem", error.message
    end
  end

  def test_one_that_lacks_something_itself_is_not_called_missing
    with_file("orbit_broken.rb", 'require "orbit_part_that_is_not_there"') do
      error = assert_raises(LoadError) { load(gem: "orbit_broken") }

      assert_match(/cannot load such file -- orbit_part_that_is_not_there/, error.message)
    end
  end

  private

  def with_file(name, text)
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, name), text)
      $LOAD_PATH.unshift(directory)
      yield
    ensure
      $LOAD_PATH.delete(directory)
    end
  end
end
