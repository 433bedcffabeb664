# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/exec_launching"
require "memscope/cli/cli"
require "stringio"

class ExecTest < MemscopeTest
  parallelize_me!

  include ExecLaunching
end

class ExecStartTest < ExecTest
  def test_jemalloc_serves_a_ruby_program_that_finds_no_trace_of_memscope
    script = "puts #{MAPPED}, (#{TRACES}).inspect, defined?(Memscope.ledger).inspect, ARGV.inspect"
    ran = exec("--", *ruby(script), "a b")

    assert_exit 0, ran, out: %("libjemalloc"\n[]\nnil\n["a b"]\n), err: ""
  end

  def test_the_programs_it_starts_have_the_allocator_and_no_trace
    ran = exec("--", *ruby("system(*#{RUBY}, '-e', #{"puts #{MAPPED}, (#{TRACES}).inspect".dump})"))

    assert_exit 0, ran, out: %("libjemalloc"\n[]\n), err: ""
  end

  def test_no_process_is_left_between
    ran = exec("--", "sh", "-c", 'echo $$; exec "$@"', "sh", *ruby("puts Process.pid, Process.ppid, #{MAPPED}"))
    started, pid, parent, allocator = ran.out.split

    assert_equal [started, Process.pid.to_s, '"libjemalloc"'], [pid, parent, allocator]
  end

  def test_a_given_library
    jemalloc = AllocatorFixtures.archive("libjemalloc.so.2")
    FileUtils.cp(jemalloc, File.dirname(directory))
    copy = File.join(File.dirname(directory), "libjemalloc.so.2")

    assert_exit 0, exec("--allocator=#{copy}", "--", *ruby("puts File.read('/proc/self/maps').include?(#{copy.dump})")),
                out: "true\n"
    assert_refused "LD_PRELOAD splits paths at spaces", "--allocator=#{path('libjemalloc.so.2')}"
  end

  def test_glibc_drops_what_is_preloaded
    ran = exec("--allocator=glibc", "--", *ruby("puts #{MAPPED}"), preload: "libjemalloc.so.2")

    assert_exit 0, ran, out: "nil\n", err: "memscope exec: LD_PRELOAD: libjemalloc.so.2 becomes unset\n"
  end

  def test_what_is_there_already_is_merged_and_said
    other = Compiled.shared("allocators/malloc_conf.c")
    ran = exec("--conf=narenas:2", "--", *ruby('puts ENV.values_at("LD_PRELOAD", "MALLOC_CONF")'),
               env: { "LD_PRELOAD" => other, "MALLOC_CONF" => "narenas:3,tcache:true" })

    assert_exit 0, ran, out: "libjemalloc.so.2:#{other}\nnarenas:2,tcache:true\n", err: <<~TEXT
      memscope exec: LD_PRELOAD: #{other} becomes libjemalloc.so.2:#{other}
      memscope exec: MALLOC_CONF: narenas:3,tcache:true becomes narenas:2,tcache:true
    TEXT
  end

  def test_exit_statuses_and_signals_are_the_programs_own
    assert_ends_alike("exec")
  end

  def test_a_program_that_calls_no_malloc_and_one_that_does
    File.write(path("idle.c"), "int main(void) { return 3; }")
    File.write(path("busy.c"), "#include <stdlib.h>\nint main(int n, char **v) { (void)v; return 3 * !!malloc(n); }")
    %w[idle busy].product(%w[jemalloc glibc]) do |name, allocator|
      Compiled.run("cc", path("#{name}.c"), "-o", path("é #{name}"))

      assert_exit 3, exec("--allocator=#{allocator}", "--", path("é #{name}")), out: "", err: ""
    end
  end

  def test_a_shell_script
    script = make("start.sh", "#!/bin/sh\necho \"$1 $LD_PRELOAD\"\nexit 5\n")

    assert_exit 5, exec("--", script, "a  b"), out: "a  b libjemalloc.so.2\n", err: ""
    script = make("bare", "echo \"$0\"\nexit 6\n")

    assert_exit 6, exec("--", script), out: "#{script}\n", err: ""
  end

  def test_an_existing_rubyopt_stays
    ran = exec("--", *ruby('p ENV["RUBYOPT"], defined?(Set)'), env: { "RUBYOPT" => "-W0 -rset" })

    assert_exit 0, ran, out: %("-W0 -rset"\n"constant"\n)
  end

  def test_memscope_in_a_path_with_a_space
    script = 'puts ENV["LD_PRELOAD"][/libjemalloc/]; p [ENV["RUBYLIB"]], $LOAD_PATH.grep(/copy/)'
    ran = ChildProcess.run_command(*spaced_memscope, "exec", "--", *ruby(script), env: { "RUBYLIB" => "/a:/b" })

    assert_exit 0, ran, out: %(libjemalloc\n["/a:/b"]\n[]\n)
  end

  # Another Ruby cannot load memscope's extension, and one before 3.1 none of its files.
  def test_a_program_of_another_ruby
    ran = ChildProcess.run(<<~RUBY, requires: %w[memscope/cli/launch/handoff])
      Object.send(:remove_const, :RUBY_VERSION)
      RUBY_VERSION = "2.7.8"
      load #{File.join(ChildProcess::ROOT, 'lib/memscope/cli/launch/autorun.rb').dump}
      puts "started"
    RUBY

    assert_exit 0, ran, out: "started\n", err: /needs Ruby 3\.1 or newer, and this program is run by 2\.7\.8/
    ran = ChildProcess.run(<<~RUBY, requires: %w[memscope/cli/launch/handoff memscope/cli/launch/inside])
      def Memscope.ledger = nil
      def Memscope.supported? = false
      def Memscope.unsupported_reason = "no extension"
      Memscope::Launch::Inside.of("proof", { title: "exec", expected: "jemalloc", status: 74 }).start
      Memscope::Launch::Inside.of("report", { title: "report", calls: { ledger: {} } }).start
      Memscope::Launch::Inside.of("requires", { title: "requires" }).start
      puts "started"
    RUBY

    assert_exit 0, ran, out: "started\n", err: <<~TEXT
      memscope exec: not proved: no extension
      memscope requires: no report: no extension (LoadError)
      memscope report: no report: no extension (LoadError)
    TEXT
  end
end

class ExecRefusalTest < ExecTest
  def setup
    super
    skip "what is refused was tested before" if ChildProcess::BRIEF
  end

  # libjemalloc.so.2 with one byte of its header changed.
  def broken_library(offset, value)
    bytes = File.binread(AllocatorFixtures.archive("libjemalloc.so.2"))
    bytes.setbyte(offset, value)
    File.join(File.dirname(directory), "broken.so").tap { |library| File.binwrite(library, bytes) }
  end

  # The dynamic linker says why it ignores the library.
  def test_a_library_that_cannot_be_loaded
    broken = broken_library(4, 1)
    { "/nowhere/x.so" => "cannot open shared object file", broken => "wrong ELF class",
      "/etc/passwd" => "(invalid ELF header|file too short)" }.each do |library, why|
      ran = assert_refused "malloc is served by glibc .*, not by #{library}", "--allocator=#{library}"

      assert_match(/object '#{library}' from LD_PRELOAD cannot be preloaded \(#{why}.*\): ignored/, ran.err)
    end
  end

  def test_a_command_that_cannot_be_started
    bad = make("bad", "#!/nowhere/sh\n")
    ["nowhere-to-be-found", "/nowhere/at/all", "/etc/passwd", directory, bad].each do |command|
      expected = ChildProcess.run_command("env", command).status.exitstatus

      assert_exit expected, exec("--", command),
                  out: "", err: /\Amemscope exec: .+: (No such file or directory|Permission denied)\n\z/
    end
  end
end

# Without a program of its own.
class ExecUsageTest < MemscopeTest
  def test_usage_errors
    { [] => /no command given; allowed: -- COMMAND/, %w[--] => /no command given/,
      %w[ruby] => /unexpected argument: ruby; allowed: --allocator NAME, .*-- COMMAND/,
      %w[--allocator=tcmalloc -- true] => /--allocator: given "tcmalloc", allowed: jemalloc, glibc, or the path of/,
      %w[--allocator=glibc --conf=narenas:2 -- true] => /--conf is for jemalloc, and glibc does not read it$/,
      %w[--conf=narenas:2 --conf prof:true -- true] => /--conf is given twice$/,
      %w[--allocator -- true] => /missing argument: --allocator; allowed: --allocator NAME/ }
      .each do |arguments, message|
      err = StringIO.new

      assert_equal 64, Memscope::CLI.run(["exec", *arguments], out: StringIO.new, err: err)
      assert_match message, err.string
    end
  end
end

class ExecApplicationTest < ExecTest
  # Starts Puma under memscope, sends it a request, stops it, and prints its output and how it ended.
  DRIVER = <<~'RUBY'
    require "json"
    require "net/http"
    reader, writer = IO.pipe
    pid = Process.spawn(*ARGV, out: writer, err: writer)
    writer.close
    said = +""
    said << reader.readpartial(4096) until said =~ %r{Listening on http://127\.0\.0\.1:(\d+)}
    body = Net::HTTP.get("127.0.0.1", "/", $1.to_i)
    Process.kill(:TERM, pid)
    puts JSON.generate(body: body, status: Process.wait2(pid).last.to_s[/(SIG\w+|exit \d+)/])
  RUBY

  def test_under_a_bundler_application
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    File.write(path("Gemfile"), "")
    script = make("app.rb", <<~RUBY)
      #!/usr/bin/env ruby
      require "bundler/setup"
      puts #{MAPPED}, ENV["RUBYOPT"], $PROGRAM_NAME
    RUBY
    [%w[bundle exec ruby], %w[bundle exec], []].each do |runner|
      ran = exec("--", *runner, script, env: { "BUNDLE_GEMFILE" => path("Gemfile") })

      assert_exit 0, ran
      assert_equal ['"libjemalloc"', script], ran.out.lines(chomp: true).values_at(0, -1)
      refute_includes ran.out, "autorun"
    end
  end

  def test_puma
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    traces = "(#{TRACES}).grep_v(/bundler|\\A\\z/)"
    File.write(path("config.ru"), "run ->(_) { [200, {}, [#{MAPPED}, #{traces}.inspect]] }\n")
    puma = %w[bundle exec puma --bind tcp://127.0.0.1:0] << path("config.ru")
    ending = ChildProcess.run_command(*RUBY, "-e", DRIVER, *memscope("exec", "--", *puma),
                                      env: { "BUNDLE_GEMFILE" => File.join(ChildProcess::ROOT, "Gemfile") }).json

    assert_equal ['"libjemalloc"[]', "SIGTERM"], ending.values_at("body", "status"), "as Puma ends without memscope"
  end

  # jemalloc's issue 2681. prof:true in --conf is an explicit choice, and not refused.
  def test_a_profiler_that_crashes_is_refused
    skip_under_sanitizer
    version = ChildProcess.run("puts Memscope.allocator.short_version", preload: ChildProcess::ALLOCATORS[:jemalloc],
                                                                        requires: ["memscope"]).out.chomp
    skip "jemalloc #{version} does not crash" unless version == "5.3.0"

    assert_refused "5\\.3\\.0 can crash.*--backend=imports.*", "--profile"
    assert_exit 0, exec("--conf=prof:true", "--", *ruby("puts 1")), out: "1\n"
  end
end
