# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/allocator_fixtures"
require_relative "../support/launching"

class ExecTest < MemscopeTest
  parallelize_me!

  include Launching

  # Shows which library serves the malloc of a program that knows nothing about memscope.
  MAPPED = 'File.read("/proc/self/maps")[/libjemalloc/].inspect'

  def setup
    super
    skip "libjemalloc.so.2 is not installed" unless AllocatorFixtures.available?("libjemalloc.so.2")
  end

  def exec(*arguments, **options) = launch("exec", *arguments, **options)

  def ruby(script) = [RbConfig.ruby, "-e", script]

  # A program named env that drops LD_PRELOAD.
  def deceptive_env
    File.write(path("env.c"), <<~C)
      #include <stdlib.h>
      #include <unistd.h>
      int main(int count, char **words) { (void)count; unsetenv("LD_PRELOAD"); return execv(words[1], words + 1); }
    C
    path("env").tap { |output| Compiled.run("cc", path("env.c"), "-o", output) }
  end

  # A command that would leave a trace if it were started.
  def assert_refused(reason, *options, command: ruby("puts 'started'"), **environment)
    ran = exec(*options, "--", *command, env: environment.transform_keys(&:to_s))

    assert_exit 74, ran, out: "", err: /\Amemscope exec: .*#{reason}.*; #{Regexp.escape(command.first)} is not started$/
    assert_equal 1, ran.err.lines.size, ran.err
  end
end

class ExecStartTest < ExecTest
  def test_jemalloc_serves_a_ruby_program_that_finds_no_trace_of_memscope
    script = "puts #{MAPPED}, (#{TRACES}).inspect, defined?(Memscope.ledger).inspect, ARGV.inspect"
    ran = exec("--", *ruby(script), "a b")

    assert_exit 0, ran, out: %("libjemalloc"\n[]\nnil\n["a b"]\n), err: ""
  end

  def test_the_programs_it_starts_have_the_allocator_and_no_trace
    ran = exec("--", *ruby("system(#{RbConfig.ruby.dump}, '-e', #{"puts #{MAPPED}, (#{TRACES}).inspect".dump})"))

    assert_exit 0, ran, out: %("libjemalloc"\n[]\n), err: ""
  end

  def test_no_process_is_left_between
    ran = exec("--", "sh", "-c", 'echo $$; exec "$@"', "sh", *ruby("puts Process.pid, Process.ppid"))
    started, pid, parent = ran.out.split

    assert_equal [started, Process.pid.to_s], [pid, parent]
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

    assert_exit 0, ran, out: "nil\n", err: "memscope exec: LD_PRELOAD: libjemalloc.so.2 is removed\n"
  end

  def test_what_is_there_already_is_merged_and_said
    other = Compiled.shared("allocators/malloc_conf.c")
    ran = exec("--conf=narenas:2", "--", *ruby('puts ENV.values_at("LD_PRELOAD", "MALLOC_CONF")'),
               env: { "LD_PRELOAD" => other, "MALLOC_CONF" => "narenas:3,tcache:true" })

    assert_exit 0, ran, out: "libjemalloc.so.2:#{other}\ntcache:true,narenas:2\n", err: <<~TEXT
      memscope exec: LD_PRELOAD: libjemalloc.so.2 is put before #{other}
      memscope exec: MALLOC_CONF: narenas:2 replaces narenas:3
      memscope exec: MALLOC_CONF: tcache:true is kept
    TEXT
  end

  def test_exit_statuses_and_signals_are_the_programs_own
    assert_ends_alike("exec")
  end

  def test_a_program_that_calls_no_malloc_and_one_that_does
    File.write(path("idle.c"), "int main(void) { return 3; }")
    File.write(path("busy.c"), "#include <stdlib.h>\nint main(int n, char **v) { (void)v; return 3 * !!malloc(n); }")
    traces = { "LD_DEBUG_OUTPUT" => path("traces"), "LC_ALL" => "C" }
    %w[idle busy].product(%w[jemalloc glibc]) do |name, allocator|
      Compiled.run("cc", path("#{name}.c"), "-o", path("é #{name}"))

      assert_exit 3, exec("--allocator=#{allocator}", "--", path("é #{name}"), env: traces), out: "", err: ""
    end

    assert_empty Dir[path("traces*")]
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
    script = "puts #{MAPPED}, (#{TRACES}).inspect, $LOAD_PATH.grep(/ copy/).inspect"
    ran = ChildProcess.run_command(*spaced_memscope, "exec", "--", *ruby(script), env: { "RUBYLIB" => "/a:/b" })

    assert_exit 0, ran, out: %("libjemalloc"\n["/a:/b"]\n[]\n)
    ran = ChildProcess.run_command(*spaced_memscope, "exec", "--", deceptive_env, *ruby("puts 'started'"))

    assert_exit 74, ran, out: "", err: /the program is not started$/
    ran = ChildProcess.run_command(*spaced_memscope, "exec", "--", "env", "RUBYLIB=/a", *ruby("puts 'started'"))

    assert_exit 74, ran, out: "", err: /RUBYLIB is set by env in the command/
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

  def program(*arguments, compiler: "cc")
    File.write(path("program.c"), "int main(void) { return 3; }")
    path("program").tap { |output| Compiled.run(compiler, path("program.c"), *arguments, "-o", output) }
  end

  def test_a_library_that_is_not_there
    assert_refused "ignores /nowhere/x.so: cannot open shared object file", "--allocator=/nowhere/x.so"
  end

  def test_a_library_for_another_class_of_machine
    assert_refused "broken.so: wrong ELF class", "--allocator=#{broken_library(4, 1)}"
  end

  def test_a_library_for_another_architecture
    assert_refused "broken.so: .*for another architecture", "--allocator=#{broken_library(18, 2)}"
  end

  def test_a_file_that_is_no_library
    assert_refused "invalid ELF header|file too short", "--allocator=/etc/passwd"
  end

  def test_a_library_that_serves_no_malloc
    library = Compiled.shared("allocators/malloc_conf.c")

    assert_refused "malloc is served by glibc .*, not by #{library}", "--allocator=#{library}"
  end

  def test_an_allocator_that_is_not_known
    library = AllocatorFixtures.shared("bump_malloc")

    assert_refused "which allocator serves malloc could not be proved", "--allocator=#{library}"
  end

  def test_glibc_behind_another_allocator
    assert_refused "could not be proved", "--allocator=glibc", LD_PRELOAD: AllocatorFixtures.shared("bump_malloc")
  end

  def test_a_jemalloc_without_its_profiler
    library = AllocatorFixtures.shared("without_profiler")

    assert_refused "Invalid conf pair: prof:true; this jemalloc was built without its profiler: " \
                   "memscope profile --backend=imports needs none", "--allocator=#{library}", "--profile"
  end

  def test_a_configuration_that_jemalloc_rejects
    assert_refused "jemalloc rejects MALLOC_CONF: Invalid conf pair: bogus:1", "--conf=bogus:1"
    assert_refused "Invalid conf value: narenas:x", MALLOC_CONF: "narenas:x"
    assert_refused "Invalid conf pair: bogus:1; Abort", "--conf=abort_conf:true,bogus:1"
    assert_refused "jemalloc", "--conf=narenas"
  end

  def test_a_configuration_for_another_allocator
    skip "not installed: mimalloc" unless AllocatorFixtures.available?(AllocatorFixtures::MIMALLOC)
    mimalloc = AllocatorFixtures.archive(AllocatorFixtures::MIMALLOC)

    assert_refused "MALLOC_CONF is for jemalloc, and this is mimalloc", "--conf=narenas:2", "--allocator=#{mimalloc}"
    assert_exit 64, exec("--allocator=glibc", "--conf=narenas:2", "--", "true"),
                err: "memscope exec: --conf is for jemalloc; glibc does not read it\n"
  end

  def test_a_static_program
    assert_refused "program is linked statically: its malloc is its own", command: [program("-static")]
    assert_refused "program is linked statically: its malloc is its own", "--allocator=glibc",
                   command: [program("-static")]
  end

  def test_a_program_with_a_malloc_of_its_own
    own = File.join(Compiled::ROOT, "test/fixtures/allocators/bump_malloc.c")

    { "jemalloc" => "libjemalloc", AllocatorFixtures.archive("libjemalloc.so.2") => "libjemalloc",
      "glibc" => "libc" }.each do |allocator, library|
      assert_refused "malloc in (.*/program) is served by \\1, not by /.*/#{library}\\.so[.0-9]*",
                     "--allocator=#{allocator}", command: [program(own, "-rdynamic")]
    end
    assert_exit 3, exec("--if-present", "--", program(own, "-rdynamic")), err: /starts unchanged \(--if-present\)$/
    assert_exit 3, exec("--allocator=off", "--", program(own, "-rdynamic")), err: ""
  end

  def test_a_program_that_is_linked_with_another_malloc
    jemalloc = AllocatorFixtures.archive("libjemalloc.so.2")

    assert_refused "malloc in .*/program is served by /.*/libjemalloc", "--allocator=glibc",
                   command: [program("-Wl,--no-as-needed", jemalloc)]
    assert_exit 3, exec("--", program("-Wl,--no-as-needed", jemalloc)), err: ""
  end

  def test_a_program_of_another_c_library
    skip "musl-gcc is not installed" unless system("musl-gcc", "-v", err: File::NULL)

    { "jemalloc" => "libjemalloc.so.2", "glibc" => "libc.so.6" }.each do |allocator, library|
      assert_refused "does not map #{library} into", "--allocator=#{allocator}",
                     command: [program(compiler: "musl-gcc")]
    end
  end

  def test_a_set_uid_and_a_set_gid_program
    skip "only root can give a file away" unless Process.uid.zero?
    program = program()
    File.chown(65_534, 65_534, program)
    { 0o4755 => "set-uid", 0o2755 => "set-gid" }.each do |mode, name|
      File.chmod(mode, program)

      assert_refused "is #{name}: the dynamic linker ignores LD_PRELOAD", command: [program]
    end
    File.chmod(0o2745, program)

    assert_exit 3, exec("--", program), err: ""
    File.chown(0, 0, program)
    File.chmod(0o6755, program)

    assert_exit 3, exec("--", program)
  end

  def test_a_program_with_capabilities
    skip "only root can give a file capabilities" unless Process.uid.zero?
    skip "setcap is not installed" unless system("setcap", "-h", %i[out err] => File::NULL)
    skip_unless_readable_for(65_534)
    program = program()
    Compiled.run("setcap", "cap_net_bind_service+ep", program)
    nobody = %w[setpriv --reuid=65534 --regid=65534 --clear-groups]
    ran = ChildProcess.run_command(*nobody, *memscope("exec", "--", program), env: { "HOME" => "/nowhere" })

    assert_exit 74, ran, err: /has file capabilities: the dynamic linker ignores LD_PRELOAD in it; .* is not started$/
    assert_exit 3, exec("--", program)
  end

  def test_a_proof_that_fails_in_the_program_itself
    command = [deceptive_env, *ruby("puts 'started'")]
    ran = exec("--", *command)

    assert_exit 74, ran, out: "", err: /\Amemscope exec: malloc is served by glibc .*; the program is not started$/
    assert_exit 0, exec("--if-present", "--", *command), out: "started\n",
                                                         err: /the program continues \(--if-present\)$/
  end

  def test_variables_that_env_would_set_afterwards
    %w[LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT MALLOC_CONF _RJEM_MALLOC_CONF GLIBC_TUNABLES RUBYOPT].each do |name|
      assert_refused "#{name} is set by env in the command, after memscope exec has prepared the environment; " \
                     "set it for memscope exec itself: env #{name}=\\.\\.\\. memscope exec -- \\.\\.\\.",
                     command: ["env", "A=1", "#{name}=", *ruby("puts 'started'")]
    end
    script = make("unset.rb", "#!/usr/bin/env -S LD_PRELOAD= #{RbConfig.ruby}\nputs 'started'\n")

    assert_refused "LD_PRELOAD is set by env", command: [script]
    assert_exit 0, exec("--if-present", "--", script), out: "started\n", err: /starts unchanged \(--if-present\)$/
  end

  def test_variables_that_env_may_set
    command = ["env", "RUBYOPT=-W0", "RUBYLIB=/a", "MALLOC_CONF=", "LD_LIBRARY_PATH=/a", *ruby("puts 'started'")]

    assert_exit 0, exec("--allocator=off", "--", *command), out: "started\n", err: ""
    assert_exit 0, exec("--allocator=glibc", "--", "env", "MALLOC_CONF=", "RUBYLIB=/a", *ruby("puts 'started'")),
                out: "started\n", err: ""
    assert_exit 0, exec("--", "env", "RUBYOPT=-W0", "RUBYLIB=/a", "echo", "started"), out: "started\n", err: ""
  end

  def test_if_present_starts_it_without_and_says_so
    ran = exec("--if-present", "--conf=narenas:2", "--allocator=/nowhere/x.so", "--",
               *ruby("p ENV['LD_PRELOAD'], ENV['MALLOC_CONF'], #{TRACES}"))

    assert_exit 0, ran, out: "nil\nnil\n[]\n",
                        err: /\Amemscope exec: .*cannot open.*; #{RbConfig.ruby} starts unchanged \(--if-present/
    assert_exit 3, exec("--if-present", "--", program("-static")), err: /is linked statically/
  end

  def test_a_command_that_cannot_be_started
    bad = make("bad", "#!/nowhere/sh\n")
    ["nowhere-to-be-found", "/nowhere/at/all", "/etc/passwd", directory, bad].each do |command|
      expected = ChildProcess.run_command("env", command).status.exitstatus
      ran = exec("--", command)

      assert_exit expected, ran, out: "", err: /\Amemscope exec: .+: (No such file or directory|Permission denied)\n\z/
      assert_exit expected, exec("--allocator=off", "--", command), out: ""
    end
  end

  def test_usage_errors
    { [] => /no command given; allowed: -- COMMAND/, %w[--] => /no command given/,
      %w[ruby] => /unexpected argument: ruby; allowed: --allocator NAME, .*-- COMMAND/,
      %w[--allocator=tcmalloc -- true] => /given "tcmalloc", allowed: jemalloc, glibc, off, or the path/,
      %w[--allocator -- true] => /--allocator: given no value, allowed: NAME/ }.each do |arguments, message|
      assert_exit 64, exec(*arguments), out: "", err: message
    end
  end
end

class ExecRolloutTest < ExecTest
  def mapped(option = nil, **environment)
    ran = exec(*option, "--", *ruby("puts #{MAPPED}"), env: environment.transform_keys(&:to_s))

    assert_exit 0, ran
    ran.out.chomp
  end

  def test_the_environment_decides
    assert_equal "nil", mapped(MEMSCOPE_ALLOCATOR: "off")
    assert_equal "nil", mapped(MEMSCOPE_ALLOCATOR: "glibc")
    assert_equal '"libjemalloc"', mapped(MEMSCOPE_ALLOCATOR: "jemalloc")
    assert_equal '"libjemalloc"', mapped("--allocator=jemalloc", MEMSCOPE_ALLOCATOR: "off")
  end

  def test_a_file_decides
    File.write(path("allocator"), "off\n")

    assert_equal "nil", mapped(MEMSCOPE_ALLOCATOR_FILE: path("allocator"))
    assert_equal '"libjemalloc"', mapped(MEMSCOPE_ALLOCATOR_FILE: path("allocator"), MEMSCOPE_ALLOCATOR: "jemalloc")
    Dir.mkdir(path("memscope"))
    FileUtils.mv(path("allocator"), path("memscope"))

    assert_equal "nil", mapped(XDG_CONFIG_HOME: directory)
  end

  def test_off_starts_the_program_untouched
    ran = exec("--conf=bogus:1", "--", *ruby("p ENV.values_at('LD_PRELOAD', 'MALLOC_CONF'), #{TRACES}"),
               preload: "libjemalloc.so.2", env: { "MEMSCOPE_ALLOCATOR" => "off", "MALLOC_CONF" => "narenas:1" })

    assert_exit 0, ran, out: %(["libjemalloc.so.2", "narenas:1"]\n[]\n), err: ""
  end

  def test_bad_content
    File.write(path("allocator"), "on\n")

    assert_exit 64, exec("--", "true", env: { "MEMSCOPE_ALLOCATOR_FILE" => path("allocator") }),
                out: "", err: /allocator: given "on", allowed: jemalloc, glibc, off, or the path of a shared library/
    assert_exit 74, exec("--", "true", env: { "MEMSCOPE_ALLOCATOR_FILE" => path("none") }),
                out: "", err: /none: No such file or directory; true is not started$/
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
    [%w[bundle exec ruby], %w[bundle exec], ["ruby"], []].each do |runner|
      ran = exec("--", *runner, script, env: { "BUNDLE_GEMFILE" => path("Gemfile") })

      assert_exit 0, ran
      assert_equal ['"libjemalloc"', script], ran.out.lines(chomp: true).values_at(0, -1)
      refute_includes ran.out, "autorun"
    end
  end

  def test_puma
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    File.write(path("config.ru"), "run ->(_) { [200, {}, [#{MAPPED}, (#{TRACES}).grep_v(/bundler/).inspect]] }\n")
    puma = %w[bundle exec puma --bind tcp://127.0.0.1:0] << path("config.ru")
    endings = [puma, memscope("exec", "--", *puma)].map do |command|
      ChildProcess.run_command(RbConfig.ruby, "-e", DRIVER, *command,
                               env: { "BUNDLE_GEMFILE" => File.join(ChildProcess::ROOT, "Gemfile") }).json
    end

    assert_equal(["nil[]", '"libjemalloc"[]'], endings.map { |ending| ending["body"] })
    assert_equal(*endings.map { |ending| ending["status"] })
  end

  # jemalloc's issue 2681. prof:true in --conf is an explicit choice, and not refused.
  def test_a_profiler_that_crashes_is_refused
    skip_under_sanitizer
    version = ChildProcess.run("puts Memscope.allocator.short_version", preload: ChildProcess::ALLOCATORS[:jemalloc],
                                                                        requires: ["memscope"]).out.chomp
    skip "jemalloc #{version} does not crash" unless version == "5.3.0"
    ran = launch("exec", "--profile", "--", RbConfig.ruby, "-e", "puts 1")

    assert_exit 74, ran, out: "", err: /5\.3\.0 can crash.*--backend=imports.* is not started$/
    assert_exit 0, launch("exec", "--conf=prof:true", "--", RbConfig.ruby, "-e", "puts 1"), out: "1\n"
  end
end
